import DemoLogic
import SwiftUI

/// The four screens, with the latest message below.
struct ContentView: View {
  let app: AppModel

  var body: some View {
    TabView {
      ModelView(app: app).tabItem { Label("Model", systemImage: "shippingbox") }
      ExamplesView(app: app).tabItem { Label("Examples", systemImage: "text.bubble") }
      TrainView(app: app).tabItem { Label("Train", systemImage: "chart.xyaxis.line") }
      ChatView(app: app).tabItem { Label("Chat", systemImage: "bubble.left.and.bubble.right") }
    }
    .safeAreaInset(edge: .bottom) {
      if !app.board.message.isEmpty {
        Text(app.board.message).font(.footnote).padding(8).frame(maxWidth: .infinity).background(.thinMaterial)
      }
    }
  }
}
