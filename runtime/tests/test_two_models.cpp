// Two models in two threads, on the bundle in the environment variable MFT_TEST_BUNDLE: each trains and answers as it
// does alone, to the bit. Under ThreadSanitizer (`make test-threads`) this also finds data races.

#include <thread>

#include "runtime/generate/generator.h"
#include "runtime/tests/trainer_test.h"

using namespace mft;
using namespace mft_test;

namespace {

// ThreadSanitizer does not see how ExecuTorch's thread pool, which is not compiled with it, hands work over.
#if defined(__SANITIZE_THREAD__)
constexpr bool kThreadSanitizer = true;
#elif defined(__has_feature)
constexpr bool kThreadSanitizer = __has_feature(thread_sanitizer);
#else
constexpr bool kThreadSanitizer = false;
#endif

/// What one thread computes: the losses of a training, its adapter, and the answer of the bundle's initial adapter.
struct Results {
  std::vector<double> losses;
  std::vector<float> parameters;
  std::vector<int64_t> answer;

  bool operator==(const Results& other) const {
    return losses == other.losses && parameters == other.parameters && answer == other.answer;
  }
};

Results compute(const Fixture& fixture, const std::string& tokens, const TrainConfig& config) {
  Results results;
  Run run(fixture, tokens, config);
  run.steps(config.steps);
  results.losses = run.trainer.losses();
  results.parameters = run.parameters();

  Model model(fixture.bundle);
  model.prepare("", Generator::prepared_tokens(model.bundle()), config.threads);
  GenerateConfig generate;
  generate.max_tokens = 20;
  results.answer = Generator(model).generate({1, 2, 3}, generate, [](int64_t) { return true; });
  return results;
}

void test_two_models(const Fixture& fixture, int64_t threads) {
  const std::string tokens = fixture.tokens(4), others = fixture.tokens(3, 2);
  TrainConfig one = config_of(kFull), other = config_of(kLisa);
  one.compute = ComputeChoice::kInt8;
  other.compute = ComputeChoice::kFloat32;
  other.lora_train = LoraTrain::kB;
  one.threads = other.threads = threads;
  const Results one_alone = compute(fixture, tokens, one), other_alone = compute(fixture, others, other);
  CHECK(one_alone.losses.size() == 6 && one_alone.answer.size() == 20 && one_alone.losses != other_alone.losses);
  Results one_beside, other_beside;
  std::thread thread([&] { other_beside = compute(fixture, others, other); });
  one_beside = compute(fixture, tokens, one);
  thread.join();
  CHECK(one_beside == one_alone);
  CHECK(other_beside == other_alone);
}

void test_busy(const Fixture& fixture) {
  Model model(fixture.bundle);
  const auto call = model.begin_call();
  bool busy = false;
  std::thread([&] {
    try {
      model.begin_call();
    } catch (const Busy&) {
      busy = true;
    }
  }).join();
  CHECK(busy);
}

}  // namespace

int main() {
  const char* bundle = std::getenv("MFT_TEST_BUNDLE");
  if (bundle == nullptr) {
    std::printf("skipped: MFT_TEST_BUNDLE is not set\n");
    return 0;
  }
  const Fixture fixture(bundle);
  test_busy(fixture);
  test_two_models(fixture, 1);
  if (!kThreadSanitizer) test_two_models(fixture, 2);
  return finish();
}
