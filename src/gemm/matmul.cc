#include "gemm/matmul.h"

#include <algorithm>

#include "base/fail.h"
#include "base/thread_pool.h"
#include "gemm/float_dot.h"
#include "gemm/int_gemm.h"
#include "gemm/tile_gemm.h"
#include "simd/cpu.h"

namespace ballast {
namespace {

/// From this m on weights are dequantized once instead of in every tile.
constexpr std::size_t kDequantizeFromM = 2 * kTileM;
/// Dequantized elements at a time: they stay in L2.
constexpr std::size_t kDequantizedElements = 64 * 1024;
/// Bytes that float dots prefetch ahead, rounded up to whole tiles of kTileN rows.
constexpr std::size_t kPrefetchAhead = 24 * 1024;
/// Weight panels that share each read of an activation panel: x need not fit a core's caches.
constexpr std::size_t kPanelsAtOnce = 2;
/// The same for tiles, which take activations from the caches faster. One panel is packed at a
/// time.
constexpr std::size_t kTilePanelsAtOnce = 4;
/// Multiplications that are worth a task.
constexpr std::size_t kTaskWork = 32 * 1024;

/// Scratch that only grows: a decoding step allocates nothing.
template <typename T>
class Scratch {
 public:
  T* at_least(std::size_t count) {
    if (count > size_) {
      data_ = allocate_aligned<T>(count);
      size_ = count;
    }
    return data_.get();
  }

 private:
  AlignedArray<T> data_;
  std::size_t size_ = 0;
};

/// The integer kernel that serves a type and m; docs/decisions/kernels.md draws who serves what.
enum class Path { gemv, gemv_f16, small_batch, gemm, tile_gemm };
Path path_of(TensorType type, std::size_t m) {
  if (m <= gemv_max_m(type)) return is_quantized(type) ? Path::gemv : Path::gemv_f16;
  if (m <= small_batch_max_m(type)) return Path::small_batch;
  return m >= kTileGemmMinM && has_amx_int8() ? Path::tile_gemm : Path::gemm;
}

std::size_t activation_panels(std::size_t m) {
  return (m + ActivationPanel::kM - 1) / ActivationPanel::kM;
}

/// Weight rows [begin, end) of one product.
struct Task {
  const Product* product;
  std::size_t begin;
  std::size_t end;
};

std::size_t round_down_to_tiles(std::size_t n) { return std::max(kTileN, n / kTileN * kTileN); }

/// Float dots of n weight rows of `type` with all activations; `first` is the number of the first
/// row in the product, row(i) the data of the i-th.
template <typename Row>
void float_dots(TensorType type, const Row& row, std::size_t first, std::size_t n, ConstMatrix x,
                const Product& product) {
  const float* bias = product.linear->bias;
  Tile tile;
  const std::size_t tile_bytes = std::max<std::size_t>(1, kTileN * product.linear->row_bytes);
  tile.ahead = (kPrefetchAhead + tile_bytes - 1) / tile_bytes * tile_bytes;
  for (std::size_t j = 0; j < x.rows; j += kTileM) {
    const std::size_t tile_m = std::min(kTileM, x.rows - j);
    for (std::size_t c = 0; c < tile_m; ++c) tile.xs[c] = x.row(j + c);
    for (std::size_t i = 0; i < n; i += kTileN) {
      const std::size_t tile_n = std::min(kTileN, n - i);
      for (std::size_t r = 0; r < tile_n; ++r) tile.rows[r] = row(i + r);
      dot_tile(type, x.cols, tile_n, tile_m, tile);
      for (std::size_t c = 0; c < tile_m; ++c) {
        float* out = product.out.row(j + c) + first + i;
        for (std::size_t r = 0; r < tile_n; ++r) {
          const float sum = tile.sums[r * kTileM + c];
          out[r] = bias == nullptr ? sum : sum + bias[first + i + r];
        }
      }
    }
  }
}

void run_float(const Task& task, ConstMatrix x) {
  const Linear& w = *task.product->linear;
  const std::size_t n = task.end - task.begin, k = w.cols;
  const bool dequantizes =
      !has_float_kernel(w.type) || (w.type != TensorType::f32 && x.rows >= kDequantizeFromM);
  const std::size_t at_once =
      std::min(n, round_down_to_tiles(kDequantizedElements / std::max<std::size_t>(1, k)));
  thread_local Scratch<float> scratch;
  float* dequantized = dequantizes ? scratch.at_least(at_once * k) : nullptr;
  for (std::size_t done = 0; done < n; done += at_once) {
    const std::size_t first = task.begin + done, now = std::min(at_once, n - done);
    if (!dequantizes) {
      auto row = [&](std::size_t i) { return w.row(first + i); };
      float_dots(w.type, row, first, now, x, *task.product);
      continue;
    }
    for (std::size_t i = 0; i < now; ++i) w.decode_row(first + i, {dequantized + i * k, k});
    auto row = [&](std::size_t i) {
      return reinterpret_cast<const std::byte*>(dequantized + i * k);
    };
    float_dots(TensorType::f32, row, first, now, x, *task.product);
  }
}

/// The activations of one call, quantized for each path that one of its products takes.
struct QuantizedMatrix {
  std::size_t m = 0, panels = 0;
  const QuantizedActivations* gemv = nullptr;          ///< super-blocks of activation 0, of 1, …
  const QuantizedActivationsI16* gemv_f16 = nullptr;   ///< likewise
  const SmallBatchActivations* small_batch = nullptr;  ///< super-block 0 of all activations, 1, …
  const ActivationPanel* gemm = nullptr;               ///< super-block 0 of all panels, 1, …
  const TileActivations* tiles = nullptr;              ///< super-block 0 of all tiles, 1, …
};

void add_bias(const Task& task, std::size_t m) {
  const float* bias = task.product->linear->bias;
  for (std::size_t j = 0; bias != nullptr && j < m; ++j) {
    float* out = task.product->out.row(j);
    for (std::size_t i = task.begin; i < task.end; ++i) out[i] += bias[i];
  }
}

/// Path::gemm: packs panels of weights and multiplies them with every panel of activations.
void run_gemm(const Task& task, const QuantizedMatrix& x) {
  constexpr std::size_t kN = WeightPanel::kN, kM = ActivationPanel::kM;
  const Linear& w = *task.product->linear;
  const MutableMatrix& out = task.product->out;
  thread_local WeightPanel panels[kPanelsAtOnce];
  thread_local Scratch<float> scratch;
  const std::size_t padded_m = x.panels * kM;
  auto* totals = reinterpret_cast<float(*)[kN]>(scratch.at_least(kPanelsAtOnce * padded_m * kN));
  for (std::size_t begin = task.begin; begin < task.end; begin += kPanelsAtOnce * kN) {
    const std::size_t n = std::min(kPanelsAtOnce * kN, task.end - begin);
    const std::size_t used = (n + kN - 1) / kN;
    auto rows_of = [&](std::size_t p) { return std::min(kN, n - p * kN); };
    std::fill_n(totals[0], used * padded_m * kN, 0.0f);
    for (std::size_t s = 0; s < superblocks(w.cols); ++s) {
      for (std::size_t p = 0; p < used; ++p) {
        pack_weights(w.type, w.row(begin + p * kN), w.row_bytes, rows_of(p), w.cols, s,
                     kPanelsAtOnce * kN, panels[p]);
      }
      for (std::size_t t = 0; t < x.panels; ++t) {
        for (std::size_t p = 0; p < used; ++p) {
          microkernel(w.type, panels[p], x.gemm[s * x.panels + t], std::min(kM, x.m - t * kM),
                      t == 0, totals + p * padded_m + t * kM);
        }
      }
    }
    for (std::size_t p = 0; p < used; ++p) {
      const std::size_t first = begin + p * kN;
      for (std::size_t j = 0; j < x.m; ++j) {
        std::copy_n(totals[p * padded_m + j], rows_of(p), out.row(j) + first);
      }
    }
  }
}

/// Path::tile_gemm: packs a panel of weights and multiplies it with every tile of activations.
void run_tile_gemm(const Task& task, const QuantizedMatrix& x) {
  constexpr std::size_t kN = TileWeights::kN, kM = TileActivations::kM;
  const Linear& w = *task.product->linear;
  const MutableMatrix& out = task.product->out;
  thread_local Scratch<TileWeights> panel_scratch;
  thread_local Scratch<float> scratch;
  const TileRows over(x.m);
  TileWeights& panel = *panel_scratch.at_least(1);
  auto* totals = reinterpret_cast<float(*)[kM][kN]>(
      scratch.at_least(kTilePanelsAtOnce * over.tiles * kM * kN));
  const TileScope<AmxTiles> scope(tile_config(w.type, over.rows));
  for (std::size_t begin = task.begin; begin < task.end; begin += kTilePanelsAtOnce * kN) {
    const std::size_t n = std::min(kTilePanelsAtOnce * kN, task.end - begin);
    const std::size_t used = (n + kN - 1) / kN;
    auto rows_of = [&](std::size_t p) { return std::min(kN, n - p * kN); };
    std::fill_n(totals[0][0], used * over.tiles * kM * kN, 0.0f);
    for (std::size_t s = 0; s < superblocks(w.cols); ++s) {
      for (std::size_t p = 0; p < used; ++p) {
        pack_weights(w.type, w.row(begin + p * kN), w.row_bytes, rows_of(p), w.cols, s,
                     kTilePanelsAtOnce * kN, panel);
        tile_microkernel(w.type, panel, x.tiles + s * over.tiles, over.tiles, over.rows,
                         totals + p * over.tiles);
      }
    }
    for (std::size_t p = 0; p < used; ++p) {
      for (std::size_t j = 0; j < x.m; ++j) {
        std::copy_n(totals[p * over.tiles + j / over.rows][j % over.rows], rows_of(p),
                    out.row(j) + begin + p * kN);
      }
    }
  }
}

void run_int(const Task& task, const QuantizedMatrix& x) {
  const Linear& w = *task.product->linear;
  const std::size_t n = task.end - task.begin, stride = task.product->out.stride;
  const std::byte* rows = w.row(task.begin);
  float* out = task.product->out.row(0) + task.begin;
  switch (path_of(w.type, x.m)) {
    case Path::gemv:
      gemv(w.type, rows, w.row_bytes, n, w.cols, x.gemv, x.m, out, stride);
      break;
    case Path::gemv_f16:
      gemv_f16(w.type, rows, w.row_bytes, n, w.cols, x.gemv_f16, x.m, out, stride);
      break;
    case Path::small_batch:
      small_batch_gemm(w.type, rows, w.row_bytes, n, w.cols, x.small_batch, x.m, out, stride);
      break;
    case Path::gemm:
      run_gemm(task, x);
      break;
    case Path::tile_gemm:
      run_tile_gemm(task, x);
      break;
  }
  add_bias(task, x.m);
}

QuantizedMatrix quantize_activations(ConstMatrix x, std::span<const Product> products) {
  constexpr std::size_t kM = ActivationPanel::kM;
  thread_local Scratch<QuantizedActivations> gemv_scratch;
  thread_local Scratch<QuantizedActivationsI16> gemv_f16_scratch;
  thread_local Scratch<SmallBatchActivations> small_batch_scratch;
  thread_local Scratch<ActivationPanel> gemm_scratch;
  thread_local Scratch<TileActivations> tile_scratch;
  auto needed = [&](Path path) {
    return std::ranges::any_of(products, [&](const Product& p) {
      return has_int_gemm(p.linear->type) && path_of(p.linear->type, x.rows) == path;
    });
  };
  const std::size_t blocks = superblocks(x.cols), panels = activation_panels(x.rows);
  QuantizedMatrix out;
  out.m = x.rows;
  const auto quantize_rows = [&](auto& scratch) {
    auto* to = scratch.at_least(x.rows * blocks);
    parallel_for(
        x.rows, [&](std::size_t i) { quantize(x.row(i), x.cols, to + i * blocks); },
        x.rows * x.cols >= kTaskWork / 4);
    return to;
  };
  if (needed(Path::gemv)) out.gemv = quantize_rows(gemv_scratch);
  if (needed(Path::gemv_f16)) out.gemv_f16 = quantize_rows(gemv_f16_scratch);
  if (needed(Path::small_batch)) {
    SmallBatchActivations* to = small_batch_scratch.at_least(x.rows * blocks);
    parallel_for(
        x.rows, [&](std::size_t i) { quantize(x.row(i), x.cols, to + i, x.rows); },
        x.rows * x.cols >= kTaskWork / 4);
    out.small_batch = to;
  }
  if (needed(Path::gemm)) {
    ActivationPanel* to = gemm_scratch.at_least(blocks * panels);
    parallel_for(
        panels,
        [&](std::size_t t) {
          const std::size_t first = t * kM;
          pack_activations(x.slice(first, std::min(kM, x.rows - first)), to + t, panels);
        },
        x.rows * x.cols >= kTaskWork);
    out.gemm = to;
    out.panels = panels;
  }
  if (needed(Path::tile_gemm)) {
    const TileRows over(x.rows);
    TileActivations* to = tile_scratch.at_least(blocks * over.tiles);
    parallel_for(
        over.tiles,
        [&](std::size_t t) {
          const std::size_t first = t * over.rows;
          pack_activations(x.slice(first, std::min(over.rows, x.rows - first)), to + t, over.tiles);
        },
        x.rows * x.cols >= kTaskWork);
    out.tiles = to;
  }
  return out;
}

/// A task has a multiple of so many weight rows.
std::size_t rows_at_once(TensorType type, std::size_t m) {
  if (!has_int_gemm(type)) return kTileN;
  switch (path_of(type, m)) {
    case Path::gemv:
    case Path::gemv_f16:
      return kTileN;
    case Path::small_batch:
      return 2 * kSmallBatchN;
    case Path::tile_gemm:
      return TileWeights::kN;
    default:
      return kPanelsAtOnce * WeightPanel::kN;
  }
}

}  // namespace

Linear::Linear(const TensorView& tensor) {
  require(tensor.shape.size() == 2, "tensor {} has shape {}, expected two dimensions", tensor.name,
          to_string(tensor.shape));
  type = tensor.type;
  data = tensor.data.data();
  rows = tensor.shape[0];
  cols = tensor.shape[1];
  row_bytes = tensor_bytes(type, cols);
}

void Linear::decode_row(std::size_t i, std::span<float> out) const {
  if (has_float_kernel(type)) return dequantize(type, row(i), cols, out.data());
  decode(type, {row(i), row_bytes}, out);
}

std::size_t multiply_scratch(TensorType type, std::size_t k, std::size_t m) {
  const auto workers = loop_threads();
  if (has_int_gemm(type)) {
    const std::size_t blocks = m * superblocks(k);
    switch (path_of(type, m)) {
      case Path::gemv:
        return blocks * sizeof(QuantizedActivations);
      case Path::gemv_f16:
        return blocks * sizeof(QuantizedActivationsI16);
      case Path::small_batch:
        return blocks * sizeof(SmallBatchActivations);
      case Path::tile_gemm: {
        const std::size_t tiles = TileRows(m).tiles;
        constexpr std::size_t kTotals =
            kTilePanelsAtOnce * TileActivations::kM * TileWeights::kN * sizeof(float);
        return tiles * (superblocks(k) * sizeof(TileActivations) + workers * kTotals) +
               workers * sizeof(TileWeights);
      }
      case Path::gemm:
        break;
    }
    constexpr std::size_t kTotals =
        kPanelsAtOnce * ActivationPanel::kM * WeightPanel::kN * sizeof(float);
    return activation_panels(m) * (superblocks(k) * sizeof(ActivationPanel) + workers * kTotals) +
           workers * kPanelsAtOnce * sizeof(WeightPanel);
  }
  return type == TensorType::f32 || m < kDequantizeFromM
             ? 0
             : workers * kDequantizedElements * sizeof(float);
}

void multiply(ConstMatrix x, std::span<const Product> products) {
  if (x.rows == 0) return;
  const QuantizedMatrix quantized = quantize_activations(x, products);
  // As many tasks as let threads finish together, and no more: each starts with a call or two.
  constexpr std::size_t kMaxTasks = 1024, kTasksPerThread = 16;
  Task tasks[kMaxTasks];
  std::size_t count = 0, work = 0;
  for (const Product& p : products) work += p.linear->rows * p.linear->cols * x.rows;
  const auto workers = loop_threads();
  const std::size_t most = std::min(kTasksPerThread * workers, kMaxTasks / 2 - 2 * products.size());
  const std::size_t size = std::max(kTaskWork, work / most + 1);
  for (const Product& p : products) {
    const Linear& w = *p.linear;
    const std::size_t unit = rows_at_once(w.type, x.rows);
    const std::size_t rows = size / std::max<std::size_t>(1, w.cols * x.rows);
    const std::size_t step = std::max<std::size_t>(1, (rows + unit / 2) / unit) * unit;
    for (std::size_t begin = 0; begin < w.rows; begin += step) {
      tasks[count++] = {&p, begin, std::min(w.rows, begin + step)};
    }
  }
  auto run = [&](std::size_t i) {
    const TensorType type = tasks[i].product->linear->type;
    if (has_int_gemm(type)) return run_int(tasks[i], quantized);
    run_float(tasks[i], x);
  };
  parallel_ranges(count, run, work >= 2 * kTaskWork);
}

}  // namespace ballast
