#pragma once

#include <cstddef>
#include <cstdint>

#include "runtime/text/unicode.h"

namespace mft {

// Written by tools/unicode_tables.py.

/// Runs of characters of one category, in order: the first character x 32 + category.
extern const uint32_t kCategoryRuns[];
extern const size_t kCategoryRunCount;

struct CharacterRange {
  char32_t first, last;
};
extern const CharacterRange kNumeric[];  // in order
extern const size_t kNumericCount;

struct DecompositionRow {
  char32_t character;
  Decomposition into;
  bool composes;  // whether `into` becomes `character` again
};
extern const DecompositionRow kDecompositions[];  // by character
extern const size_t kDecompositionCount;

struct ClassRun {
  char32_t begin;
  uint16_t length;
  uint8_t combining_class;  // not 0
};
extern const ClassRun kClassRuns[];  // by character
extern const size_t kClassRunCount;

}  // namespace mft
