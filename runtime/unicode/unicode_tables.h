#pragma once

#include <cstddef>
#include <cstdint>

#include "runtime/unicode/unicode.h"

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

/// `count` characters from `first` on, each `stride` behind the last, become those `delta` behind them.
struct CaseRun {
  char32_t first;
  uint16_t count;
  uint8_t stride;
  int32_t delta;
};
extern const CaseRun kUpperRuns[], kLowerRuns[];  // by character
extern const size_t kUpperRunCount, kLowerRunCount;
extern const CaseRun kTitleRuns[];  // characters whose title case differs from upper case
extern const size_t kTitleRunCount;

/// What becomes several characters, 0 behind the last.
struct CaseExpansion {
  char32_t character;
  char16_t upper[3], title[3];
};
extern const CaseExpansion kExpansions[];  // by character
extern const size_t kExpansionCount;

// Characters for which a property does not follow from the category (letter_case.cpp), in order.
extern const CharacterRange kLowerExceptions[], kUpperExceptions[], kIgnorableExceptions[], kDigitExceptions[],
    kNumeralExceptions[];
extern const size_t kLowerExceptionCount, kUpperExceptionCount, kIgnorableExceptionCount, kDigitExceptionCount,
    kNumeralExceptionCount;

}  // namespace mft
