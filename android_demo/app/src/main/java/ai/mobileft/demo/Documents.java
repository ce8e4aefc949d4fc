package ai.mobileft.demo;

import ai.mobileft.app.BundleCopy;
import ai.mobileft.app.Opening;
import android.content.ContentResolver;
import android.content.Intent;
import android.database.Cursor;
import android.net.Uri;
import android.provider.DocumentsContract;
import android.provider.DocumentsContract.Document;
import java.io.Closeable;
import java.io.FileNotFoundException;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.util.ArrayList;
import java.util.List;

/** What the user chose with the system's picker. To be opened in a thread that may wait; errors are IOExceptions. */
final class Documents {
  private static final String[] COLUMNS = {
    Document.COLUMN_DOCUMENT_ID, Document.COLUMN_DISPLAY_NAME, Document.COLUMN_SIZE, Document.COLUMN_MIME_TYPE
  };

  private Documents() {}

  /** The files in a folder, without the folders in it. */
  static Opening<List<BundleCopy.Source>> folder(ContentResolver resolver, Uri tree) {
    return () -> asIoException(() -> list(resolver, tree));
  }

  static Opening<InputStream> input(ContentResolver resolver, Uri file) {
    return () -> asIoException(() -> found(resolver.openInputStream(file)));
  }

  /** What was in the file is gone. */
  static Opening<OutputStream> output(ContentResolver resolver, Uri file) {
    return () -> asIoException(() -> found(resolver.openOutputStream(file, "wt")));
  }

  private static List<BundleCopy.Source> list(ContentResolver resolver, Uri tree) throws IOException {
    // The picker's grant lasts as long as its activity, which may go before the copy is done.
    resolver.takePersistableUriPermission(tree, Intent.FLAG_GRANT_READ_URI_PERMISSION);
    Uri children =
        DocumentsContract.buildChildDocumentsUriUsingTree(tree, DocumentsContract.getTreeDocumentId(tree));
    List<BundleCopy.Source> files = new ArrayList<>();
    try (Cursor cursor = found(resolver.query(children, COLUMNS, null, null, null))) {
      while (cursor.moveToNext()) {
        if (Document.MIME_TYPE_DIR.equals(cursor.getString(3))) continue;
        Uri file = DocumentsContract.buildDocumentUriUsingTree(tree, cursor.getString(0));
        files.add(new Source(cursor.getString(1), cursor.getLong(2), input(resolver, file)));
      }
    }
    return files;
  }

  private static <T extends Closeable> T found(T opened) throws IOException {
    if (opened == null) throw new FileNotFoundException("the app that has this file does not answer");
    return opened;
  }

  /** Apps that hand out files throw what they like, such as a SecurityException. */
  private static <T> T asIoException(Opening<T> opening) throws IOException {
    try {
      return opening.open();
    } catch (RuntimeException e) {
      throw new IOException(e.toString(), e);
    }
  }

  private static final class Source implements BundleCopy.Source {
    private final String name;
    private final long size;
    private final Opening<InputStream> content;

    Source(String name, long size, Opening<InputStream> content) {
      this.name = name;
      this.size = size;
      this.content = content;
    }

    @Override
    public String getName() {
      return name;
    }

    @Override
    public long getSize() {
      return size;
    }

    @Override
    public InputStream open() throws IOException {
      return content.open();
    }
  }
}
