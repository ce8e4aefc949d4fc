#pragma once

#include <atomic>

#include "runtime/base/error.h"

namespace mft {

/// A call on an object on which another call is computing.
class Busy : public Error {
 public:
  using Error::Error;
};

/// Admits one call at a time, from whatever thread. A second call fails at once instead of waiting, because the first
/// one may take hours.
class Exclusive {
 public:
  /// A call, from construction to destruction. Throws Busy with `message` if another one is in progress.
  class Call {
   public:
    Call(Exclusive& object, const char* message) : object_(object) {
      if (object_.taken_.exchange(true, std::memory_order_acquire)) throw Busy(message);
    }
    ~Call() { object_.taken_.store(false, std::memory_order_release); }
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;

   private:
    Exclusive& object_;
  };

 private:
  std::atomic<bool> taken_{false};
};

}  // namespace mft
