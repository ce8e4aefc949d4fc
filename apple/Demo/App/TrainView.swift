import Charts
import DemoLogic
import SwiftUI

/// Budget, training, and what it learned at night.
struct TrainView: View {
  let app: AppModel
  @State private var isExporting = false

  var body: some View {
    @Bindable var budget = app.budget
    Form {
      Section("Budget") {
        Slider(value: $budget.settings.position) { Text("Memory") }
        Stepper("\(budget.settings.steps) steps", value: $budget.settings.steps, in: 1...Settings.mostSteps, step: 20)
        Text(budget.text)
      }
      .disabled(app.trainings.isOn)
      .onChange(of: budget.settings) { Task { await budget.ask() } }
      Section("Training") {
        Text(app.trainings.status)
        if app.trainings.isOn {
          Button("Stop") { Task { await app.trainings.stop() } }
        } else {
          Button("Train") { Task { await app.trainings.begin() } }
          if app.trainings.isUnfinished { Button("Go on") { Task { await app.trainings.goOn() } } }
        }
        LossChartView(chart: app.trainings.chart)
        Button("Export the adapter") { isExporting = true }.disabled(app.trainings.adapter == nil)
      }
      Section("At night") {
        Toggle("Learn from new examples", isOn: $budget.settings.nightly)
        if !app.trainings.nightStatus.isEmpty { Text(app.trainings.nightStatus) }
      }
    }
    .fileImporter(isPresented: $isExporting, allowedContentTypes: [.folder]) { chosen in
      guard let folder = try? chosen.get() else { return }
      let isScoped = folder.startAccessingSecurityScopedResource()
      defer { if isScoped { folder.stopAccessingSecurityScopedResource() } }
      app.export(to: folder)
    }
  }
}

/// The loss of each point, and its moving average.
struct LossChartView: View {
  let chart: LossChart

  var body: some View {
    Chart(chart.points) { point in
      PointMark(x: .value("Step", point.step), y: .value("Loss", point.loss)).opacity(0.3)
      LineMark(x: .value("Step", point.step), y: .value("Smoothed loss", point.smoothedLoss))
    }
    .frame(height: 200)
    .accessibilityLabel("Loss by step")
  }
}
