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

/** Opens the user's choice in the system's picker, in a thread that may wait. Errors are IOExceptions. */
final class Documents {
  private static final String[] COLUMNS = {
    Document.COLUMN_DOCUMENT_ID, Document.COLUMN_DISPLAY_NAME, Document.COLUMN_SIZE, Document.COLUMN_MIME_TYPE
  };

  private Documents() {}

  /** The files in a folder, without subfolders. */
  static Opening<List<BundleCopy.Source>> folder(ContentResolver resolver, Uri tree) {
    return () -> asIoException(() -> list(resolver, tree));
  }

  static Opening<InputStream> input(ContentResolver resolver, Uri file) {
    return () -> asIoException(() -> found(resolver.openInputStream(file)));
  }

  /** Replaces the file's content. */
  static Opening<OutputStream> output(ContentResolver resolver, Uri file) {
    return () -> asIoException(() -> found(resolver.openOutputStream(file, "wt")));
  }

  private static List<BundleCopy.Source> list(ContentResolver resolver, Uri tree) throws IOException {
    // The picker's grant ends with its activity, which may end before the copy is complete.
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
    if (opened == null) throw new FileNotFoundException("the app that provides this file does not respond");
    return opened;
  }

  /** Apps that provide files may throw any exception, such as a SecurityException. */
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
