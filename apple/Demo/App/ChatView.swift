import DemoLogic
import SwiftUI

/// Asks the model before and after training.
struct ChatView: View {
  let app: AppModel
  @State private var question = ""

  var body: some View {
    Form {
      Section("Question") {
        TextField("Question", text: $question, axis: .vertical)
        if app.chat.isOn {
          Button("Stop") { app.chat.stop() }
        } else {
          Button("Ask") { Task { await app.chat.ask(question) } }
        }
      }
      Section("Before training") { Text(app.chat.before) }
      Section("After training") { Text(app.chat.after) }
    }
  }
}
