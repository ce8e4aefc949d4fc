#pragma once

// What every call of the C API does: its exceptions become a status and a text, and its arguments are checked.

#include <exception>
#include <map>
#include <new>
#include <string>

#include "runtime/base/error.h"
#include "runtime/base/exclusive.h"
#include "runtime/c_api/mobile_ft.h"
#include "runtime/train/run.h"

/// The options that were set. Each call makes its configuration from all of them, so that it sees options that exclude
/// each other.
struct mft_options {
  enum Kind { kTrain, kGenerate, kLearn };

  Kind kind;
  std::map<std::string, std::string> given;
  std::string text;  // the latest result of mft_options_get
};

namespace mft {

struct BadArgument : mft::Error {
  using Error::Error;
};

/// Sets the text of mft_last_error() for this thread.
void set_last_error(const char* text);

/// Runs `body`; an exception becomes a status and the text of mft_last_error().
template <typename Body>
mft_status guarded(const Body& body) noexcept {
  try {
    body();
    return MFT_OK;
  } catch (const BadArgument& error) {
    set_last_error(error.what());
    return MFT_ERROR_ARGUMENT;
  } catch (const mft::Busy& error) {
    set_last_error(error.what());
    return MFT_ERROR_BUSY;
  } catch (const mft::Stopped& stopped) {
    set_last_error(stopped.what());
    return MFT_STOPPED;
  } catch (const std::bad_alloc&) {
    set_last_error("out of memory");
  } catch (const std::exception& error) {
    set_last_error(error.what());
  } catch (...) {
    set_last_error("unknown error");
  }
  return MFT_ERROR_FAILED;
}

inline void require(const void* pointer, const char* name) {
  if (pointer == nullptr) throw BadArgument(std::string(name) + ": must not be NULL");
}

inline void require_path(const char* path, const char* name) {
  require(path, name);
  if (*path == 0) throw BadArgument(std::string(name) + ": must not be empty");
}

inline void require_options(const mft_options* options, mft_options::Kind kind) {
  static constexpr const char* kNames[] = {"train", "generate", "learn"};
  require(options, "options");
  if (options->kind != kind)
    throw BadArgument(std::string("options: start from mft_") + kNames[kind] + "_options_new()");
}

inline const char* or_empty(const char* text) { return text == nullptr ? "" : text; }

}  // namespace mft
