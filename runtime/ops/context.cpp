#include "runtime/ops/context.h"

#include <utility>

namespace mft {
namespace {

thread_local OpContext* current = nullptr;

}  // namespace

CurrentContext::CurrentContext(OpContext& context) : before_(std::exchange(current, &context)) {}
CurrentContext::~CurrentContext() { current = before_; }
OpContext* CurrentContext::get() { return current; }

}  // namespace mft
