import DemoLogic
import SwiftUI

/// Imports a training bundle.
struct ModelView: View {
  let app: AppModel
  @State private var isChoosing = false

  var body: some View {
    Form {
      Section("Model") {
        Text(app.bundle == nil ? "No model yet. Choose a folder that `mobile-ft export` wrote." : "A model is ready.")
        if let copied = app.copied { ProgressView("Copying", value: copied) }
        Button("Choose a folder") { isChoosing = true }.disabled(app.copied != nil)
      }
    }
    .fileImporter(isPresented: $isChoosing, allowedContentTypes: [.folder]) { chosen in
      guard let folder = try? chosen.get() else { return }
      Task {
        let isScoped = folder.startAccessingSecurityScopedResource()
        defer { if isScoped { folder.stopAccessingSecurityScopedResource() } }
        await app.copyBundle(from: folder)
      }
    }
  }
}
