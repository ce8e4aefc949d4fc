#include "runtime/plan/throughput.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <limits>

#include "runtime/base/buffer.h"
#include "runtime/base/clock.h"
#include "runtime/base/option.h"
#include "runtime/base/random.h"
#include "runtime/config/arithmetic.h"
#include "runtime/dispatch/kernels.h"
#include "runtime/plan/measurements.h"
#include "runtime/platform/cpu.h"
#include "runtime/platform/disk.h"
#include "runtime/platform/threads.h"

namespace mft {
namespace {

constexpr double kMeasured = 0.04;  // seconds per kernel
constexpr int64_t kTokens = 256, kFewTokens = 32, kRank = 16;
constexpr int64_t kSmallest = 64, kLargest = 768;  // range of the width of the measured linear layers
constexpr int64_t kRoundTo = 64;
constexpr AttentionShape kAttention = {256, 4, 4, 64, 0, 0.125f, 0.f, nullptr};
constexpr int64_t kElements = int64_t{1} << 17;
constexpr size_t kReadBytes = size_t{8} << 20, kReadAtOnce = size_t{1} << 20;
constexpr double kFlashBytesPerSecond = 0.5e9;  // typical of phones

/// Returns the shortest time of several runs of `work` within kMeasured, because threads may first share a core until
/// the system spreads them.
template <typename F>
double seconds_of(const F& work) {
  double best = std::numeric_limits<double>::infinity();
  const double end = now() + kMeasured;
  do {
    const double start = now();
    work();
    best = std::min(best, now() - start);
  } while (now() < end);
  return std::max(best, 1e-9);
}

/// Returns values that are no special case for any kernel.
Buffer noise(int64_t floats) {
  Buffer buffer(static_cast<size_t>(floats) * sizeof(float));
  Random random(1, 0);
  for (int64_t i = 0; i < floats; ++i) buffer.floats()[i] = static_cast<float>(random.uniform() - 0.5);
  return buffer;
}

/// Measures the forward and backward of a linear layer [size, size].
double linear_seconds(Compute compute, int64_t size, int64_t tokens) {
  const Format format{Code::kQ4_1, 32};
  const Buffer weight(static_cast<size_t>(size * size / kPanelRows / format.group) * format.block_bytes());
  const Buffer x = noise(size * tokens), adapter = noise(4 * kRank * size), y(x.size()), dx(x.size());
  const Buffer scratch(kernels().linear_scratch_bytes(compute, tokens, size, size, kRank));
  const PackedWeight packed{reinterpret_cast<const uint8_t*>(weight.bytes()), format, size, size};
  const int64_t half = kRank * size;
  float* const a = adapter.floats();
  const Lora lora{a, a + half, kRank, 1};
  return seconds_of([&] {
    const Scratch room{scratch.bytes(), scratch.size()};
    kernels().linear_forward(compute, x.floats(), tokens, packed, &lora, false, y.floats(), room);
    kernels().linear_backward(compute, y.floats(), x.floats(), tokens, packed, &lora, dx.floats(), a + 2 * half,
                              a + 3 * half, room);
  });
}

double attention_seconds(Compute compute) {
  const int64_t size = kAttention.t * kAttention.heads * kAttention.dim;
  const Buffer qkvo = noise(4 * size), lse(static_cast<size_t>(kAttention.heads * kAttention.t) * sizeof(float));
  const Buffer scratch(kernels().attention_scratch_bytes(compute, kAttention));
  int64_t positions[kAttention.t];
  for (int64_t i = 0; i < kAttention.t; ++i) positions[i] = i;
  float* const q = qkvo.floats();
  return seconds_of([&] {
    kernels().attention_forward(compute, kAttention, q, q + size, q + 2 * size, positions, q + 3 * size, lse.floats(),
                                {scratch.bytes(), scratch.size()});
  });
}

/// Returns linear, attention, decoded and elements of Throughput.
std::vector<double> compute_rates(Compute compute, int64_t size) {
  const double many = linear_seconds(compute, size, kTokens), few = linear_seconds(compute, size, kFewTokens);
  const double weights = static_cast<double>(size * size),
               token = std::max(many - few, many / 2) / (kTokens - kFewTokens);
  const double linear = 4 * weights / token;
  const double decoded = 2 * weights / std::max(few - kFewTokens * token, few / 100);
  const double attention =
      2.0 * kAttention.heads * kAttention.dim * kAttention.t * kAttention.t / attention_seconds(compute);
  const Buffer numbers = noise(3 * kElements);
  float* const n = numbers.floats();
  const double elements =
      kElements / seconds_of([&] { kernels().glu(Glu::kSwiglu, n, n + kElements, kElements, n + 2 * kElements); });
  return {linear, attention, decoded, elements};
}

/// Measures the bytes per second of reading a file without the page cache. Returns nothing if too few of its bytes are
/// on a disk for a meaningful rate.
std::vector<double> read_rate(const std::string& path) {
  const Buffer room(kReadAtOnce);
  struct stat status;
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return {};
  const bool there = fstat(fd, &status) == 0 && static_cast<uint64_t>(status.st_blocks) * 512 >= kReadBytes &&
                     static_cast<uint64_t>(status.st_size) >= kReadBytes;
  close(fd);
  const int direct = there ? open_uncached(path, kReadBytes) : -1;
  if (direct < 0) return {};
  const double start = now();
  size_t done = 0;
  for (; done < kReadBytes; done += kReadAtOnce) {
    if (pread(direct, room.bytes(), kReadAtOnce, static_cast<off_t>(done)) != static_cast<ssize_t>(kReadAtOnce)) break;
  }
  const double seconds = now() - start;
  close(direct);
  if (done < kReadBytes) return {};
  return {static_cast<double>(done) / std::max(seconds, 1e-9)};
}

std::string storage_name(const std::string& path) {
  struct stat status;
  return "device " + std::to_string(stat(path.c_str(), &status) == 0 ? status.st_dev : 0);
}

}  // namespace

Throughput measured_throughput(const TrainConfig& config, const Bundle& bundle) {
  const ThreadParts parts(config.threads);
  const int64_t size = std::clamp(bundle.hidden_size / kRoundTo * kRoundTo, kSmallest, kLargest);
  const std::string machine =
      cpu_name() + ", " + arithmetic(config) + ", " + std::to_string(thread_count()) + " threads";
  const std::vector<double> compute =
      remembered(machine + ", width " + std::to_string(size), {"linear", "attention", "decoded", "elements"},
                 [&] { return compute_rates(compute_of(config), size); });
  const std::string weights = bundle.file("weights.ptd");
  const std::vector<double> read = remembered(storage_name(weights), {"read"}, [&] { return read_rate(weights); });
  return {compute[0], compute[1], compute[2], compute[3], read.empty() ? kFlashBytesPerSecond : read[0]};
}

void read_value(const std::string& text, Throughput& throughput) {
  std::vector<int64_t> numbers;
  read_value(text, numbers);
  const bool positive = std::all_of(numbers.begin(), numbers.end(), [](int64_t n) { return n > 0; });
  if (numbers.size() != 5 || !positive) fail("must be five positive integers separated by commas");
  const std::vector<double> r(numbers.begin(), numbers.end());
  throughput = {r[0], r[1], r[2], r[3], r[4]};
}

}  // namespace mft
