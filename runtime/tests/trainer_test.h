#pragma once

// What the tests of the trainer share: a bundle with token files, one run, and a configuration of every schedule.

#include <algorithm>
#include <string>
#include <vector>

#include "runtime/base/random.h"
#include "runtime/tests/test_support.h"
#include "runtime/train/trainer.h"

namespace mft_test {

using namespace mft;

constexpr int64_t kSeqLen = 16;

/// A bundle and a token file of `sequences` random sequences for it.
struct Fixture {
  TempFolder folder;
  std::string bundle;

  explicit Fixture(const std::string& path) : bundle(path) {}

  std::string tokens(int64_t sequences, uint64_t seed = 1) const {
    const int64_t vocabulary = Bundle(bundle).vocab_size;
    Random random(seed, 0);
    TokenTensors t;
    for (int64_t s = 0; s < sequences; ++s) {
      std::vector<int32_t> row;
      for (int64_t i = 0; i < kSeqLen - s % 3; ++i) {
        row.push_back(static_cast<int32_t>(random.next() % static_cast<uint64_t>(vocabulary)));
      }
      t.add(row, row.front());
    }
    const std::string path = folder / ("tokens" + std::to_string(sequences) + "_" + std::to_string(seed));
    t.write(path);
    return path;
  }
};

/// One run: model, data and trainer.
struct Run {
  Model model;
  TokenFile data;
  Trainer trainer;

  Run(const Fixture& fixture, const std::string& tokens, const TrainConfig& config, const std::string& adapter = "")
      : model(fixture.bundle), data(tokens, model.bundle().vocab_size), trainer(model, config, adapter) {}

  StepResult step() { return trainer.step(data); }
  void steps(int64_t count) {
    for (int64_t i = 0; i < count; ++i) step();
  }
  std::vector<float> parameters() const {
    std::vector<float> values(model.layout().size);
    std::copy_n(model.parameters(), values.size(), values.begin());
    return values;
  }
};

inline TrainConfig config_of(const ScheduleRule& rule, Selection selection = Selection::kRandom) {
  TrainConfig config;
  config.steps = 6;
  config.seq_len = kSeqLen;
  config.lr.value = 5e-3;
  config.schedule.rule = &rule;
  config.schedule.selection = selection;
  config.seed = 3;
  config.schedule.seed = 3;
  return config;
}

inline std::vector<TrainConfig> every_schedule(const Fixture& fixture) {
  TrainConfig dropbp = config_of(kDropBP);
  dropbp.offload_folder = fixture.folder.path();
  return {dropbp,
          config_of(kFull),
          config_of(kLcsb, Selection::kContiguous),
          config_of(kLcsb, Selection::kStrided),
          config_of(kLcsb, Selection::kRandom),
          config_of(kSuffix),
          config_of(kLisa),
          config_of(kFreeze)};
}

}  // namespace mft_test
