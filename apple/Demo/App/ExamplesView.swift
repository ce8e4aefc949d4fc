import DemoLogic
import SwiftUI

/// Takes examples to learn: typed ones, and files.
struct ExamplesView: View {
  let app: AppModel
  @State private var question = ""
  @State private var answer = ""
  @State private var isChoosing = false

  var body: some View {
    Form {
      Section("\(app.examples.count) examples") {
        TextField("Question", text: $question, axis: .vertical)
        TextField("Answer to learn", text: $answer, axis: .vertical)
        Button("Add") {
          Task {
            if await app.examples.add(ExampleForm(question: question, answer: answer)) { (question, answer) = ("", "") }
          }
        }
        Button("Import a file") { isChoosing = true }
      }
    }
    .fileImporter(isPresented: $isChoosing, allowedContentTypes: [.plainText, .json, .data]) { chosen in
      guard let file = try? chosen.get() else { return }
      Task {
        let isScoped = file.startAccessingSecurityScopedResource()
        defer { if isScoped { file.stopAccessingSecurityScopedResource() } }
        await app.examples.read(file)
      }
    }
  }
}
