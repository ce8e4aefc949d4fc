#include "runtime/dispatch/kernels.h"

#include <cstdlib>
#include <stdexcept>

#include "runtime/platform/cpu.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace mft {

// As in runtime/CMakeLists.txt, the best last.
#if defined(__x86_64__)
#define MFT_INSTRUCTION_SETS(X) X(avx2) X(avxvnni) X(avx512) X(avx512vnni) X(amx)
#elif defined(__aarch64__)
#define MFT_INSTRUCTION_SETS(X) X(neon) X(dotprod) X(i8mm)
#endif

// Defined in table.cpp.
#define MFT_DECLARE(name)     \
  namespace name {            \
  extern const Kernels table; \
  }
MFT_INSTRUCTION_SETS(MFT_DECLARE)
#undef MFT_DECLARE

namespace {

// One function a name in MFT_INSTRUCTION_SETS: whether CPU and operating system have it.
#if defined(__x86_64__)
bool has_avx512() {
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}
// Clang 16 knows no names for these two.
bool has_f16c() {
  unsigned a, b, c, d;
  return __get_cpuid(1, &a, &b, &c, &d) && (c >> 29 & 1) != 0;
}
bool has_avx2() {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi") &&
         __builtin_cpu_supports("bmi2") && has_f16c();
}
bool has_avxvnni() {
  unsigned a, b, c, d;
  return has_avx2() && __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a >> 4 & 1) != 0;
}
bool has_avx512vnni() { return has_avx512() && __builtin_cpu_supports("avx512vnni"); }
bool has_amx() {
  unsigned a, b, c, d;
  const bool has_int8_tiles = __get_cpuid_count(7, 0, &a, &b, &c, &d) && (d >> 24 & 1) != 0 && (d >> 25 & 1) != 0;
  return has_int8_tiles && has_avx512vnni() && may_use_tiles();
}
#elif defined(__aarch64__)
bool has_neon() { return true; }
bool has_dotprod() { return arm_features().dotprod; }
bool has_i8mm() { return has_dotprod() && arm_features().i8mm; }
#endif

struct Compiled {
  const Kernels& kernels;
  bool (*has)();
};

const Compiled kCompiled[] = {
#define MFT_ENTRY(name) {name::table, has_##name},
    MFT_INSTRUCTION_SETS(MFT_ENTRY)
#undef MFT_ENTRY
};

// The one named `wanted`, or the best of all where it is empty. Asks for no other: to ask for AMX changes the process.
const Kernels* pick(const std::string& wanted) {
  const Kernels* picked = nullptr;
  for (const Compiled& compiled : kCompiled) {
    if (!wanted.empty() && wanted != compiled.kernels.isa) continue;
    if (compiled.has()) picked = &compiled.kernels;
  }
  if (picked != nullptr) return picked;
  std::string names;
  for (const std::string& name : instruction_sets()) names += " " + name;
  throw std::invalid_argument("instruction set " + wanted + ": this machine has" + names);
}

const Kernels* pick_first() {
  const char* wanted = std::getenv("MFT_ISA");
  return pick(wanted != nullptr ? wanted : "");
}

const Kernels*& current() {
  static const Kernels* kernels = pick_first();
  return kernels;
}

}  // namespace

const Kernels& kernels() { return *current(); }

void use_instruction_set(const std::string& name) { current() = pick(name); }

std::vector<std::string> instruction_sets() {
  std::vector<std::string> names;
  for (const Compiled& compiled : kCompiled) {
    if (compiled.has()) names.push_back(compiled.kernels.isa);
  }
  return names;
}

}  // namespace mft
