#include "runtime/kernels/linear/matvec.h"

#include <algorithm>
#include <array>
#include <utility>

#include "runtime/kernels/linear/block.h"
#include "runtime/kernels/linear/code_bytes.h"
#include "runtime/kernels/linear/int8_quads.h"
#include "runtime/platform/sweep.h"
#include "runtime/platform/threads.h"

namespace mft::MFT_ISA {
namespace {

// Bytes of weights that are asked for ahead: the CPU's prefetchers stop at the end of a page.
constexpr int64_t kAhead = 2048;
// Products of A and rows of x that one thread computes: fewer are done sooner than a second thread is awake.
constexpr int64_t kAlone = int64_t{4} << 10;
// Of weights that one thread takes at a time, and of a head, whose pages are dropped behind it.
constexpr int64_t kItemBytes = int64_t{16} << 10, kPartBytes = int64_t{4} << 20;

// The sums of products of kVec rows' bytes with those of x, four columns at a time, over at most a block.
template <bool kSmall>
class Sums {
 public:
#if defined(MFT_PAIR_SUMS)
  void add(VecB bytes, VecI x) {
    if constexpr (kSmall) {
      pairs_ += pair_sums(bytes, x);
    } else {
      sums_ += add_halves(pair_sums(absolute(bytes), with_signs(x, bytes)));
    }
  }
  void add_rests(VecB rests, VecI x) { sums_ += add_halves(pair_sums(rests, x)); }
  VecI total() const { return kSmall ? add_halves(pairs_) : sums_; }

 private:
  VecHU pairs_{};
  VecI sums_{};
#else
  void add(VecB bytes, VecI x) { sums_ = dot_lanes(sums_, bytes, x); }
  void add_rests(VecB rests, VecI x) { sums_ = dot_lanes(sums_, rests, x); }
  VecI total() const { return sums_; }

 private:
  VecI sums_{};
#endif
};

// Sums of both parts of R rows, and of the rests with the first parts.
template <Code F, int R>
struct RowSums {
  Sums<Bytes<F>::kSmall> of[2 * R][k16Vecs];
  Sums<false> rests[Bytes<F>::kHasRest ? R : 1][k16Vecs];
};

// Four columns of a block at a time, `quads` of them, times those of both parts of R rows of x, x_step bytes apart.
template <Code F, int R>
[[gnu::always_inline]] inline void multiply_columns(const uint8_t* codes, int64_t quads, const int8_t* x,
                                                    int64_t x_step, RowSums<F, R>& sums) {
  for (int64_t q = 0; q < quads; ++q, codes += 4 * Block<F>::kColumnBytes, x += 4) {
    VecB bytes[k16Vecs], rests[k16Vecs];
    __builtin_prefetch(codes + kAhead);
    quads_of_columns<!Block<F>::kBytes>(codes, bytes);
    for (int v = 0; v < k16Vecs; ++v) {
      if constexpr (Bytes<F>::kHasRest) rests[v] = Bytes<F>::rests_of(bytes[v]);
      bytes[v] = Bytes<F>::of(bytes[v]);
    }
    for (int r = 0; r < 2 * R; ++r) {
      const VecI four = splat_4(x + r * x_step);
      for (int v = 0; v < k16Vecs; ++v) {
        sums.of[r][v].add(bytes[v], four);
        if constexpr (Bytes<F>::kHasRest) {
          if (r % 2 == 0) sums.rests[r / 2][v].add_rests(rests[v], four);
        }
      }
    }
  }
}

// y [R, 16] of one panel.
template <Code F, int R>
void panel_products(const PackedWeight& w, int64_t panel, const Int15Rows& in, Vec (*y)[k16Vecs]) {
  const int64_t group = w.format.group, padded = Int15Rows::padded(in.k), blocks = Int15Rows::blocks(in.k);
  const int64_t columns = std::min(group, kInt15Block);
  using Form = FormOf<F>;
  for (int64_t k = 0; k < in.k;) {
    const Block<F> block(block_at<F>(w, panel, k / group));
    for (int64_t c = 0; c < group; c += columns, k += columns) {
      RowSums<F, R> sums;
      multiply_columns<F, R>(block.codes + c * Block<F>::kColumnBytes, columns / 4, in.codes + k, padded, sums);
      for (int r = 0; r < R; ++r) {
        const float scale = in.scales[r * blocks + k / kInt15Block];
        const int32_t codes = in.part_sum(r, 0, k, columns) * Int15Rows::kSecondPart + in.part_sum(r, 1, k, columns);
        for (int v = 0; v < k16Vecs; ++v) {
          VecI whole = sums.of[2 * r][v].total() * Int15Rows::kSecondPart + sums.of[2 * r + 1][v].total() -
                       Form::kOffset * codes;
          if constexpr (Form::kHasRest) whole += sums.rests[r][v].total() * kRestsInSecond<Form>;
          add_block<Form>(to_float(whole), codes, scale, block.scale[v], Bytes<F>::minimum(block, v), y[r][v]);
        }
      }
    }
  }
}

// The same with weights of floats.
template <int R>
void float_panel_products(const PackedWeight& w, int64_t panel, const Int15Rows& in, Vec (*y)[k16Vecs]) {
  const int64_t group = w.format.group;
  for (int64_t k = 0; k < in.k; ++k) {
    Vec column[kPanelVecs];
    Block<Code::kF16>(block_at<Code::kF16>(w, panel, k / group)).column(k % group, column);
    for (int r = 0; r < R; ++r) {
      for (int v = 0; v < k16Vecs; ++v) y[r][v] += splat(in.x[r * in.k + k]) * column[v];
    }
  }
}

template <Code F, int R>
void multiply_panels(const PackedWeight& w, const Int15Rows& in, int64_t begin, int64_t end, float* y) {
  for (int64_t panel = begin; panel < end; ++panel) {
    Vec of_panel[R][k16Vecs] = {};
    if constexpr (F == Code::kF16) {
      float_panel_products<R>(w, panel, in, of_panel);
    } else {
      panel_products<F, R>(w, panel, in, of_panel);
    }
    for (int r = 0; r < R; ++r) {
      for (int v = 0; v < k16Vecs; ++v) {
        const int64_t row = panel * kPanelRows + v * kVec, lanes = std::min<int64_t>(kVec, w.rows - row);
        if (lanes > 0) store_part(y + r * w.rows + row, of_panel[r][v], lanes);
      }
    }
  }
}

using Multiply = void (*)(const PackedWeight&, const Int15Rows&, int64_t, int64_t, float*);

template <Code F, int... kRowsLessOne>
constexpr std::array<Multiply, kMatvecRows> multiplies(std::integer_sequence<int, kRowsLessOne...>) {
  return {multiply_panels<F, kRowsLessOne + 1>...};
}

Multiply multiply_of(Code code, int64_t m) {
  return with_code(code, [&](auto f) {
    static constexpr auto kAll = multiplies<f()>(std::make_integer_sequence<int, static_cast<int>(kMatvecRows)>{});
    return kAll[static_cast<size_t>(m - 1)];
  });
}

Vec load_number(const float* p) { return load(p); }
Vec load_number(const uint16_t* p) { return load_half(reinterpret_cast<const uint8_t*>(p)); }
float number(const float* p) { return *p; }
float number(const uint16_t* p) { return half_to_float(reinterpret_cast<const uint8_t*>(p)); }

// Of float32 or float16 numbers a.
template <typename T>
float dot(const T* a, const float* b, int64_t n) {
  Vec sums[4] = {};
  int64_t i = 0;
  for (; i + 4 * kVec <= n; i += 4 * kVec) {
    for (int v = 0; v < 4; ++v) sums[v] += load_number(a + i + v * kVec) * load(b + i + v * kVec);
  }
  for (; i + kVec <= n; i += kVec) sums[0] += load_number(a + i) * load(b + i);
  float total = sum((sums[0] + sums[1]) + (sums[2] + sums[3]));
  for (; i < n; ++i) total += number(a + i) * b[i];
  return total;
}

// y [m, rows] += scale h B^T for rows [begin, end) of whole panels, with B in float16 panel by panel.
void add_half_low_rank(const Lora& lora, const float* h, int64_t m, int64_t begin, int64_t end, int64_t rows,
                       float* y) {
  for (int64_t n0 = begin; n0 < end; n0 += kPanelRows) {
    const uint16_t* b = lora.half_b + n0 * lora.rank;
    const int64_t width = std::min<int64_t>(kPanelRows, rows - n0);
    for (int64_t r = 0; r < m; ++r) {
      const float* factors = h + r * lora.rank;
      float* out = y + r * rows + n0;
      int64_t n = 0;
      for (; n + kVec <= width; n += kVec) {
        Vec total{};
        for (int64_t j = 0; j < lora.rank; ++j) total += splat(factors[j]) * load_number(b + j * width + n);
        store(out + n, load(out + n) + total * lora.half_scale);
      }
      for (; n < width; ++n) {
        float total = 0;
        for (int64_t j = 0; j < lora.rank; ++j) total += factors[j] * number(b + j * width + n);
        out[n] += total * lora.half_scale;
      }
    }
  }
}

// y [m, rows] += scale h B^T for rows [begin, end).
void add_low_rank(const Lora& lora, const float* h, int64_t m, int64_t begin, int64_t end, int64_t rows, float* y) {
  for (int64_t r = 0; r < m; ++r) {
    for (int64_t n = begin; n < end; ++n) {
      y[r * rows + n] += lora.scale * dot(lora.b + n * lora.rank, h + r * lora.rank, lora.rank);
    }
  }
}

}  // namespace

void matvec_low_rank(const Int15Rows& x, const Lora& lora, float* h) {
  parallel_ranges(lora.rank, ceil_div(kAlone, x.k * x.m), [&](int64_t begin, int64_t end) {
    for (int64_t j = begin; j < end; ++j) {
      for (int64_t r = 0; r < x.m; ++r) {
        const float* row = x.x + r * x.k;
        h[r * lora.rank + j] =
            lora.half_a != nullptr ? dot(lora.half_a + j * x.k, row, x.k) : dot(lora.a + j * x.k, row, x.k);
      }
    }
  });
}

void matvec(const Int15Rows& x, const PackedWeight& w, const Lora* lora, const float* h, float* y) {
  const Multiply multiply = multiply_of(w.format.code, x.m);
  const int64_t panel_bytes = w.cols / w.format.group * static_cast<int64_t>(w.format.block_bytes());
  const int64_t panels = ceil_div(w.rows, kPanelRows), step = ceil_div(kItemBytes, panel_bytes);
  const int64_t part = round_up(ceil_div(kPartBytes, panel_bytes), step);
  for (int64_t first = 0; first < panels; first += part) {
    const int64_t count = std::min(part, panels - first);
    parallel_ranges(count, step, [&](int64_t begin, int64_t end) {
      multiply(w, x, first + begin, first + end, y);
      if (lora != nullptr) {
        (lora->half_b != nullptr ? add_half_low_rank : add_low_rank)(
            *lora, h, x.m, (first + begin) * kPanelRows, std::min(w.rows, (first + end) * kPanelRows), w.rows, y);
      }
    });
    if (w.read_once) drop_pages(w.data + first * panel_bytes, w.data + (first + count) * panel_bytes);
  }
}

}  // namespace mft::MFT_ISA
