// Ops that the small bundle does not use, as ExecuTorch calls them: by name, with boxed arguments in the order of their
// schema. Each must give what its kernel gives, and refuse what does not fit.

#include <executorch/extension/memory_allocator/malloc_memory_allocator.h>
#include <executorch/runtime/core/evalue.h>
#include <executorch/runtime/kernel/kernel_runtime_context.h>
#include <executorch/runtime/kernel/operator_registry.h>
#include <executorch/runtime/platform/runtime.h>

#include <cstddef>
#include <deque>
#include <string>
#include <thread>

#include "runtime/dispatch/kernels.h"
#include "runtime/ops/context.h"
#include "runtime/tests/kernels/kernel_test.h"

using namespace mft;
using namespace mft_test;

namespace {

namespace et = executorch::runtime;
using executorch::aten::ScalarType;

// The arguments of one call. Tensors refer to the caller's vectors.
class Call {
 public:
  Call& floats(const Floats& data, std::vector<int32_t> sizes) {
    return tensor(ScalarType::Float, data.data(), std::move(sizes));
  }
  Call& bytes(const std::vector<uint8_t>& data, std::vector<int32_t> sizes) {
    return tensor(ScalarType::Byte, data.data(), std::move(sizes));
  }
  Call& integers(const std::vector<int64_t>& data) {
    return tensor(ScalarType::Long, data.data(), {static_cast<int32_t>(data.size())});
  }
  Call& integer(int64_t value) {
    values_.emplace_back(value);
    return *this;
  }
  Call& real(double value) {
    values_.emplace_back(value);
    return *this;
  }
  Call& text(const char* value) {
    texts_.emplace_back(value, std::strlen(value));
    values_.emplace_back(&texts_.back());
    return *this;
  }
  Call& none() {
    values_.emplace_back();
    return *this;
  }

  et::Error operator()(const std::string& name) {
    const auto op = et::get_op_function_from_registry(name.c_str());
    CHECK(op.ok());
    if (!op.ok()) return op.error();
    executorch::extension::MallocMemoryAllocator allocator;
    et::KernelRuntimeContext context(nullptr, &allocator);
    std::vector<et::EValue*> stack;
    for (et::EValue& value : values_) stack.push_back(&value);
    stack.push_back(stack.back());  // the result
    (*op)(context, {stack.data(), stack.size()});
    return context.failure_state();
  }

 private:
  struct Shape {
    std::vector<int32_t> sizes, strides;
    std::vector<uint8_t> order;
  };

  Call& tensor(ScalarType type, const void* data, std::vector<int32_t> sizes) {
    Shape& shape = shapes_.emplace_back();
    shape.sizes = std::move(sizes);
    const size_t n = shape.sizes.size();
    shape.strides.assign(n, 1);
    for (size_t i = n; i-- > 1;) shape.strides[i - 1] = shape.strides[i] * shape.sizes[i];
    for (size_t i = 0; i < n; ++i) shape.order.push_back(static_cast<uint8_t>(i));
    tensors_.emplace_back(type, n, shape.sizes.data(), const_cast<void*>(data), shape.order.data(),
                          shape.strides.data());
    values_.emplace_back(executorch::aten::Tensor(&tensors_.back()));
    return *this;
  }

  std::deque<Shape> shapes_;
  std::deque<executorch::aten::TensorImpl> tensors_;
  std::deque<executorch::aten::ArrayRef<char>> texts_;
  std::deque<et::EValue> values_;
};

constexpr int32_t kT = 5, kD = 7, kN = kT * kD;

void test_glu(Glu kind, const std::string& name) {
  const Floats dy = random_floats(kN), gate = random_floats(kN), up = random_floats(kN);
  Floats y(kN), dgate(kN), dup(kN), y_op(kN), dgate_op(kN), dup_op(kN);
  kernels().glu(kind, gate.data(), up.data(), kN, y.data());
  kernels().glu_backward(kind, dy.data(), gate.data(), up.data(), kN, dgate.data(), dup.data());
  CHECK(Call().floats(gate, {kT, kD}).floats(up, {kT, kD}).floats(y_op, {kT, kD})("mobile_ft::" + name + ".out") ==
        et::Error::Ok);
  CHECK(Call()
            .floats(dy, {kT, kD})
            .floats(gate, {kT, kD})
            .floats(up, {kT, kD})
            .floats(dgate_op, {kT, kD})
            .floats(dup_op, {kT, kD})("mobile_ft::" + name + "_backward.out") == et::Error::Ok);
  CHECK(y == y_op && dgate == dgate_op && dup == dup_op);
}

void test_glu_2bit(Glu kind, const std::string& name) {
  const int32_t bytes = glu_2bit_code_bytes(kD);
  const Floats dy = random_floats(kN), gate = random_floats(kN), up = random_floats(kN);
  Floats y(kN), dgate(kN), dup(kN), y_op(kN), dgate_op(kN), dup_op(kN);
  std::vector<uint8_t> codes(kT * bytes), codes_op(kT * bytes);
  kernels().glu_2bit(kind, gate.data(), up.data(), kT, kD, y.data(), codes.data());
  kernels().glu_2bit_backward(kind, dy.data(), up.data(), y.data(), codes.data(), kT, kD, dgate.data(), dup.data());
  CHECK(Call()
            .floats(gate, {kT, kD})
            .floats(up, {kT, kD})
            .floats(y_op, {kT, kD})
            .bytes(codes_op, {kT, bytes})("mobile_ft::" + name + ".out") == et::Error::Ok);
  const auto backward = [&](int32_t code_bytes) {
    return Call()
        .floats(dy, {kT, kD})
        .floats(up, {kT, kD})
        .floats(y, {kT, kD})
        .bytes(codes, {kT, code_bytes})
        .floats(dgate_op, {kT, kD})
        .floats(dup_op, {kT, kD})("mobile_ft::" + name + "_backward.out");
  };
  CHECK(backward(bytes) == et::Error::Ok);
  CHECK(y == y_op && codes == codes_op && dgate == dgate_op && dup == dup_op);
  CHECK(backward(bytes - 1) == et::Error::InvalidArgument);
  const Floats not_bytes(kT * bytes);
  CHECK(Call()
            .floats(gate, {kT, kD})
            .floats(up, {kT, kD})
            .floats(y_op, {kT, kD})
            .floats(not_bytes, {kT, bytes})("mobile_ft::" + name + ".out") == et::Error::InvalidArgument);
}

void test_ms_rms_norm() {
  const Floats x = random_floats(kN), dz = random_floats(kN);
  Floats z(kN), rstd(kT), dx(kN), z_op(kN), rstd_op(kT), dx_op(kN);
  kernels().ms_rms_norm(x.data(), kT, kD, 1e-3f, z.data(), rstd.data());
  kernels().ms_rms_norm_backward(dz.data(), z.data(), rstd.data(), kT, kD, dx.data());
  CHECK(Call()
            .floats(x, {kT, kD})
            .real(1e-3)
            .floats(z_op, {kT, kD})
            .floats(rstd_op, {kT})("mobile_ft::ms_rms_norm.out") == et::Error::Ok);
  CHECK(Call()
            .floats(dz, {kT, kD})
            .floats(z, {kT, kD})
            .floats(rstd, {kT})
            .floats(dx_op, {kT, kD})("mobile_ft::ms_rms_norm_backward.out") == et::Error::Ok);
  CHECK(z == z_op && rstd == rstd_op && dx == dx_op);
}

void test_packed_linear() {
  const int32_t rows = 20, cols = 64, panels = 2, blocks = cols / 32;
  const TestWeight w("q4_0", rows, cols);
  const int32_t block = static_cast<int32_t>(w.packed.format.block_bytes());
  const Floats x = random_floats(kT * cols);
  Floats y(kT * rows), y_op(kT * rows);
  TestScratch scratch(kernels().linear_scratch_bytes(Compute::kFloat32, kT, rows, cols, 0));
  kernels().linear_forward(Compute::kFloat32, x.data(), kT, w.packed, nullptr, false, y.data(), scratch.get());
  const auto call = [&](const char* format, int64_t requested) {
    return Call()
        .floats(x, {kT, cols})
        .bytes(w.bytes, {panels, blocks, block})
        .text(format)
        .integer(requested)
        .none()
        .none()
        .real(0)
        .floats(y_op, {kT, rows})("mobile_ft::packed_linear.out");
  };
  CHECK(call("q4_0", rows) == et::Error::Ok);
  CHECK(y == y_op);
  for (const char* format : {"q4_1", "q5_0", ""}) CHECK(call(format, rows) == et::Error::InvalidArgument);
  for (const int64_t requested : {int64_t{16}, int64_t{33}, int64_t{0}, int64_t{-20}, INT64_MIN, INT64_MAX}) {
    CHECK(call("q4_0", requested) == et::Error::InvalidArgument);
  }
  // A call that ends with the weight.
  CHECK(Call().floats(x, {kT, cols}).bytes(w.bytes, {panels, blocks, block})("mobile_ft::packed_linear.out") ==
        et::Error::InvalidArgument);
}

void test_add_bias() {
  const Floats x = random_floats(kN), bias = random_floats(kD);
  Floats y(kN), y_op(kN);
  kernels().add_bias(x.data(), bias.data(), kT, kD, y.data());
  const auto call = [&](const Floats& b, int32_t size) {
    return Call().floats(x, {kT, kD}).floats(b, {size}).floats(y_op, {kT, kD})("mobile_ft::add_bias.out");
  };
  CHECK(call(bias, kD) == et::Error::Ok);
  CHECK(y == y_op);
  CHECK(call(random_floats(kD - 1), kD - 1) == et::Error::InvalidArgument);
}

/// A packed_linear takes over the packed x of the one before it only if nothing can have changed x or the scratch.
void test_packed_input() {
  const float x[] = {1, 2, 3, 4};
  const std::byte scratch[1] = {};
  PackedInput packed;
  CHECK(!packed.holds(Compute::kInt8, nullptr, 0, 0, nullptr));
  packed.keep(Compute::kInt8, x, 2, 2, scratch);
  CHECK(packed.holds(Compute::kInt8, x, 2, 2, scratch));
  CHECK(!packed.holds(Compute::kFloat32, x, 2, 2, scratch));
  CHECK(!packed.holds(Compute::kInt8, x + 1, 2, 2, scratch));
  CHECK(!packed.holds(Compute::kInt8, x, 1, 2, scratch) && !packed.holds(Compute::kInt8, x, 2, 1, scratch));
  CHECK(!packed.holds(Compute::kInt8, x, 2, 2, scratch + 1));
  packed.forget();
  CHECK(!packed.holds(Compute::kInt8, x, 2, 2, scratch));

  OpContext context;
  const CurrentContext current(context);
  context.packed_input.keep(Compute::kInt8, x, 2, 2, scratch);
  test_add_bias();  // any other op
  CHECK(!context.packed_input.holds(Compute::kInt8, x, 2, 2, scratch));
}

void test_context() {
  const Floats x = random_floats(kN);
  Floats y(kN);
  const auto add = [&] {
    return Call().floats(x, {kT, kD}).floats(x, {kT, kD}).floats(y, {kT, kD})("mobile_ft::add.out");
  };
  OpContext inner;
  {
    const CurrentContext current(inner);
    CHECK(add() == et::Error::Ok);
    inner.outputs = {{y.data(), kN * sizeof(float) - 1}};
    CHECK(add() == et::Error::InvalidArgument);  // would write past the caller's buffer
  }
  CHECK(inner.counters[0].calls == 2 && CurrentContext::get()->counters[0].calls == 0);
  std::thread([&] { CHECK(CurrentContext::get() == nullptr && add() == et::Error::InvalidState); }).join();
}

void test_rms_norm_of_heads() {
  const int32_t heads = 3, dim = 4, n = heads * dim;
  const Floats dy = random_floats(kT * n), x = random_floats(kT * n), weight = random_floats(dim);
  Floats y(kT * n), rstd(kT * heads), dx(kT * n), y_op(kT * n), rstd_op(kT * heads), dx_op(kT * n);
  kernels().rms_norm(x.data(), weight.data(), kT * heads, dim, 1e-5f, y.data(), rstd.data());
  kernels().rms_norm_backward(dy.data(), x.data(), weight.data(), rstd.data(), kT * heads, dim, dx.data());
  const auto forward = [&](const Floats& w) {
    return Call()
        .floats(x, {kT, n})
        .floats(w, {static_cast<int32_t>(w.size())})
        .real(1e-5)
        .floats(y_op, {kT, n})
        .floats(rstd_op, {kT, heads})("mobile_ft::rms_norm.out");
  };
  CHECK(forward(weight) == et::Error::Ok);
  CHECK(Call()
            .floats(dy, {kT, n})
            .floats(x, {kT, n})
            .floats(weight, {dim})
            .floats(rstd, {kT, heads})
            .floats(dx_op, {kT, n})("mobile_ft::rms_norm_backward.out") == et::Error::Ok);
  CHECK(y == y_op && rstd == rstd_op && dx == dx_op);
  CHECK(forward(random_floats(5)) == et::Error::InvalidArgument);
}

// In the arithmetic of the current context.
void test_attention_window(int64_t window) {
  const Compute compute = CurrentContext::get()->compute;
  const int32_t heads = 2, kv_heads = 1, dim = 8, nq = heads * dim, nk = kv_heads * dim;
  const AttentionShape shape{kT, heads, kv_heads, dim, window, 1.f / std::sqrt(8.f), 0, nullptr};
  const Floats q = random_floats(kT * nq), k = random_floats(kT * nk), v = random_floats(kT * nk);
  const Floats dout = random_floats(kT * nq);
  const std::vector<int64_t> positions = {0, 1, 2, 3, 4};
  Floats o(kT * nq), lse(heads * kT), dq(kT * nq), dk(kT * nk), dv(kT * nk);
  Floats o_op = o, lse_op = lse, dq_op = dq, dk_op = dk, dv_op = dv;
  TestScratch scratch(kernels().attention_scratch_bytes(compute, shape));
  kernels().attention_forward(compute, shape, q.data(), k.data(), v.data(), positions.data(), o.data(), lse.data(),
                              scratch.get());
  kernels().attention_backward(compute, shape, dout.data(), q.data(), k.data(), v.data(), o.data(), lse.data(),
                               positions.data(), dq.data(), dk.data(), dv.data(), scratch.get());
  const auto forward = [&](int64_t requested) {
    return Call()
        .floats(q, {kT, nq})
        .floats(k, {kT, nk})
        .floats(v, {kT, nk})
        .integers(positions)
        .integer(heads)
        .integer(kv_heads)
        .integer(requested)
        .floats(o_op, {kT, nq})
        .floats(lse_op, {heads, kT})("mobile_ft::attention.out");
  };
  CHECK(forward(window) == et::Error::Ok);
  CHECK(Call()
            .floats(dout, {kT, nq})
            .floats(q, {kT, nq})
            .floats(k, {kT, nk})
            .floats(v, {kT, nk})
            .floats(o, {kT, nq})
            .floats(lse, {heads, kT})
            .integers(positions)
            .integer(heads)
            .integer(kv_heads)
            .integer(window)
            .floats(dq_op, {kT, nq})
            .floats(dk_op, {kT, nk})
            .floats(dv_op, {kT, nk})("mobile_ft::attention_backward.out") == et::Error::Ok);
  CHECK(o == o_op && lse == lse_op && dq == dq_op && dk == dk_op && dv == dv_op);
  CHECK(forward(-1) == et::Error::InvalidArgument);

  // The last two tokens after three cached ones: the rows of the whole.
  const Floats q_new(q.begin() + 3 * nq, q.end()), k_new(k.begin() + 3 * nk, k.end()),
      v_new(v.begin() + 3 * nk, v.end());
  const std::vector<int64_t> places = {3, 4};
  const Doubles whole(o.begin() + 3 * nq, o.end());
  Floats rest(2 * nq);
  CHECK(Call()
            .floats(q_new, {2, nq})
            .floats(k_new, {2, nk})
            .floats(v_new, {2, nk})
            .floats(k, {kT, nk})
            .floats(v, {kT, nk})
            .integers(places)
            .integer(heads)
            .integer(kv_heads)
            .integer(window)
            .floats(rest, {2, nq})("mobile_ft::attention_decode.out") == et::Error::Ok);
  CHECK(error(rest, whole) < (compute == Compute::kInt8 ? 0.03 : kTolerance));  // answers attend in float32
}

void test_short_conv() {
  constexpr int32_t d = 9, taps = 3;
  const Floats bcx = random_floats(kT * 3 * d), weight = random_floats(taps * d), dy = random_floats(kT * d);
  const Floats state = random_floats((taps - 1) * d);
  const std::vector<int64_t> positions = {0, 1, 2, 0, 1};
  const ShortConvShape shape{kT, d, taps};
  Floats y(kT * d), dbcx(bcx.size()), next(state.size());
  Floats y_op = y, dbcx_op = dbcx, next_op = next;
  kernels().short_conv(shape, bcx.data(), weight.data(), positions.data(), y.data());
  kernels().short_conv_backward(shape, dy.data(), bcx.data(), weight.data(), positions.data(), dbcx.data());
  const auto forward = [&](const std::vector<int64_t>& places) {
    return Call()
        .floats(bcx, {kT, 3 * d})
        .floats(weight, {taps, d})
        .integers(places)
        .floats(y_op, {kT, d})("mobile_ft::short_conv.out");
  };
  CHECK(forward(positions) == et::Error::Ok);
  CHECK(Call()
            .floats(dy, {kT, d})
            .floats(bcx, {kT, 3 * d})
            .floats(weight, {taps, d})
            .integers(positions)
            .floats(dbcx_op, {kT, 3 * d})("mobile_ft::short_conv_backward.out") == et::Error::Ok);
  CHECK(y == y_op && dbcx == dbcx_op);
  CHECK(forward({0, 2, 2, 0, 1}) == et::Error::InvalidArgument);  // before the first token

  const std::vector<int64_t> places = {6, 7, 8, 9, 10};
  kernels().short_conv_decode(shape, bcx.data(), weight.data(), state.data(), places.data(), y.data(), next.data());
  const auto decode = [&](int32_t rows) {
    return Call()
        .floats(bcx, {kT, 3 * d})
        .floats(weight, {taps, d})
        .floats(state, {rows, d})
        .integers(places)
        .floats(y_op, {kT, d})
        .floats(next_op, {taps - 1, d})("mobile_ft::short_conv_decode.out");
  };
  CHECK(decode(taps - 1) == et::Error::Ok);
  CHECK(y == y_op && next == next_op);
  CHECK(decode(1) == et::Error::InvalidArgument);
}

}  // namespace

int main() {
  et::runtime_init();
  OpContext context;
  const CurrentContext current(context);
  test_context();
  test_packed_input();
  test_glu(Glu::kSwiglu, "swiglu");
  test_glu(Glu::kGeglu, "geglu");
  test_glu_2bit(Glu::kSwiglu, "swiglu_2bit");
  test_glu_2bit(Glu::kGeglu, "geglu_2bit");
  test_ms_rms_norm();
  test_packed_linear();
  test_rms_norm_of_heads();
  test_add_bias();
  for (const Compute compute : {Compute::kInt8, Compute::kFloat32}) {
    context.compute = compute;
    for (const int64_t window : {0, 2}) test_attention_window(window);
  }
  test_short_conv();
  return finish();
}
