#include "model/matmul.h"

#include <algorithm>

#include "ballast/threads.h"
#include "base/fail.h"
#include "base/parallel.h"
#include "model/bf16_dots.h"
#include "model/integer_dots.h"
#include "model/row_dots.h"

namespace ballast {
namespace {

/// Activations from which on rows are unpacked once instead of in every tile.
constexpr std::size_t kUnpackFrom = 2 * kTileColumns;
/// Floats of unpacked rows at a time: they stay in the second-level cache.
constexpr std::size_t kPanel = 64 * 1024;
/// Bytes of weights that a decoding step asks for ahead, and what four rows more make of it.
constexpr std::size_t kAhead = 24 * 1024;
/// Panels in bfloat16: rows, and numbers of each that a tile goes over before the next tile.
constexpr std::size_t kBf16Rows = 48;
constexpr std::size_t kBf16Depth = 1024;
/// Panels of quantised weights that share what is read of the activations, which need not fit the
/// caches of a core.
constexpr std::size_t kPanels = 2;
/// Multiplications that are worth a task.
constexpr std::size_t kTaskWork = 32 * 1024;

/// Room that grows and is kept: a decoding step allocates nothing.
template <typename T>
class Room {
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

using Bf16Matrix = MatrixView<const std::uint16_t>;

/// How quantised weights are multiplied: as they lie, rows by themselves or kLaneRows side by side,
/// or from panels.
enum class Way { rows, lanes, panels };
Way way_of(TensorType type, std::size_t columns) {
  if (columns <= 2) return Way::rows;
  return columns <= most_lane_columns(type) ? Way::lanes : Way::panels;
}

std::size_t tiles_of(std::size_t rows) {
  return (rows + IntegerTile::kColumns - 1) / IntegerTile::kColumns;
}

/// Rows [begin, end) of one product.
struct Task {
  const Product* product;
  std::size_t begin;
  std::size_t end;
};

std::size_t round_to_tiles(std::size_t rows) {
  return std::max(kTileRows, rows / kTileRows * kTileRows);
}

/// Dots of `count` rows of `type` with all activations. row(i) is the i-th.
template <typename Row>
void dot_rows(TensorType type, const Row& row, std::size_t first, std::size_t count, ConstMatrix x,
              const Product& product) {
  const float* bias = product.linear->bias;
  Tile tile;
  const std::size_t turn = std::max<std::size_t>(1, kTileRows * product.linear->row_bytes);
  tile.ahead = (kAhead + turn - 1) / turn * turn;
  for (std::size_t j = 0; j < x.rows; j += kTileColumns) {
    const std::size_t columns = std::min(kTileColumns, x.rows - j);
    for (std::size_t c = 0; c < columns; ++c) tile.xs[c] = x.row(j + c);
    for (std::size_t i = 0; i < count; i += kTileRows) {
      const std::size_t rows = std::min(kTileRows, count - i);
      for (std::size_t r = 0; r < rows; ++r) tile.rows[r] = row(i + r);
      dot_tile(type, x.cols, rows, columns, tile);
      for (std::size_t c = 0; c < columns; ++c) {
        float* out = product.out.row(j + c) + first + i;
        for (std::size_t r = 0; r < rows; ++r) {
          const float sum = tile.sums[r * kTileColumns + c];
          out[r] = bias == nullptr ? sum : sum + bias[first + i + r];
        }
      }
    }
  }
}

void run_float(const Task& task, ConstMatrix x) {
  const Linear& w = *task.product->linear;
  const std::size_t count = task.end - task.begin;
  const bool unpack =
      !has_row_reader(w.type) || (w.type != TensorType::f32 && x.rows >= kUnpackFrom);
  if (!unpack) {
    auto row = [&](std::size_t i) { return w.row(task.begin + i); };
    return dot_rows(w.type, row, task.begin, count, x, *task.product);
  }
  thread_local Room<float> room;
  const std::size_t at_once =
      std::min(count, round_to_tiles(kPanel / std::max<std::size_t>(1, w.cols)));
  float* panel = room.at_least(at_once * w.cols);
  for (std::size_t done = 0; done < count; done += at_once) {
    const std::size_t now = std::min(at_once, count - done);
    for (std::size_t i = 0; i < now; ++i) {
      w.decode_row(task.begin + done + i, {panel + i * w.cols, w.cols});
    }
    auto row = [&](std::size_t i) {
      return reinterpret_cast<const std::byte*>(panel + i * w.cols);
    };
    dot_rows(TensorType::f32, row, task.begin + done, now, x, *task.product);
  }
}

/// A row of bfloat16 numbers and the distance to the next: not a multiple of a page's length, for
/// rows of a tile would then share few places of the first-level cache.
std::size_t bf16_stride(std::size_t cols) { return padded_bf16(cols) + 32; }

/// Rows [first, first + count) of the product, from rows unpacked at `panel`.
void bf16_panel(const Product& product, std::size_t first, std::size_t count,
                const std::uint16_t* panel, Bf16Matrix x, float* lanes) {
  constexpr std::size_t kRows = Bf16Tile::kRows, kColumns = Bf16Tile::kColumns;
  const float* bias = product.linear->bias;
  const std::size_t n = padded_bf16(x.cols);
  Bf16Tile tile;
  for (std::size_t j = 0; j < x.rows; j += kColumns) {
    const std::size_t columns = std::min(kColumns, x.rows - j);
    // The activations' part stays in the first-level cache while rows pass by.
    for (std::size_t k = 0; k < n || k == 0; k += kBf16Depth) {
      const std::size_t depth = std::min(kBf16Depth, n - k);
      const bool last = k + depth == n;
      for (std::size_t c = 0; c < columns; ++c) tile.xs[c] = x.row(j + c) + k;
      for (std::size_t i = 0; i < count; i += kRows) {
        const std::size_t rows = std::min(kRows, count - i);
        for (std::size_t r = 0; r < kRows; ++r) {
          tile.rows[r] = panel + std::min(i + r, count - 1) * x.stride + k;
        }
        tile.lanes = lanes + i * kColumns * Bf16Tile::kLanes;
        bf16_tile(tile, depth, columns, k == 0, last);
        for (std::size_t c = 0; last && c < columns; ++c) {
          float* out = product.out.row(j + c) + first + i;
          for (std::size_t r = 0; r < rows; ++r) {
            out[r] = bias == nullptr ? tile.sums[c][r] : tile.sums[c][r] + bias[first + i + r];
          }
        }
      }
    }
  }
}

void run_bf16(const Task& task, Bf16Matrix x) {
  const Linear& w = *task.product->linear;
  const std::size_t count = task.end - task.begin;
  if (x.rows == 1) {
    float* out = task.product->out.row(0) + task.begin;
    bf16_dots(w.row(task.begin), w.row_bytes, count, w.cols, x.row(0), out);
    for (std::size_t i = 0; w.bias != nullptr && i < count; ++i) out[i] += w.bias[task.begin + i];
    return;
  }
  thread_local Room<std::uint16_t> panel_room;
  thread_local Room<float> lane_room;
  const std::size_t at_once = std::min(count, kBf16Rows);
  std::uint16_t* panel = panel_room.at_least(at_once * x.stride);
  float* lanes =
      lane_room.at_least((at_once + Bf16Tile::kRows) * Bf16Tile::kColumns * Bf16Tile::kLanes);
  for (std::size_t done = 0; done < count; done += at_once) {
    const std::size_t now = std::min(at_once, count - done);
    for (std::size_t i = 0; i < now; ++i) {
      pad_bf16(w.row(task.begin + done + i), w.cols, panel + i * x.stride);
    }
    bf16_panel(*task.product, task.begin + done, now, panel, x, lanes);
  }
}

/// Activations as integers: a few, row after row, or tiles of many, tile t of span s at
/// s · tiles + t.
/// Activations as integers, for those ways that a product of the call wants.
struct IntegerMatrix {
  std::size_t rows = 0, tiles = 0;
  const IntegerSpan* spans = nullptr;    ///< of an activation, then of the next
  const LaneSpan* lane_spans = nullptr;  ///< of all activations, then the next of all
  const IntegerTile* many = nullptr;
};

void run_integers(const Task& task, const IntegerMatrix& x) {
  constexpr std::size_t kRows = IntegerPanel::kRows, kColumns = IntegerTile::kColumns;
  const Linear& w = *task.product->linear;
  const MutableMatrix& out = task.product->out;
  const Way way = way_of(w.type, x.rows);
  if (way != Way::panels) {
    const std::size_t count = task.end - task.begin;
    const std::byte* rows = w.row(task.begin);
    float* sums = out.row(0) + task.begin;
    if (way == Way::rows) {
      integer_dots(w.type, rows, w.row_bytes, count, w.cols, x.spans, x.rows, sums, out.stride);
    } else {
      integer_lane_dots(w.type, rows, w.row_bytes, count, w.cols, x.lane_spans, x.rows, sums,
                        out.stride);
    }
    for (std::size_t j = 0; w.bias != nullptr && j < x.rows; ++j) {
      for (std::size_t i = task.begin; i < task.end; ++i) out.row(j)[i] += w.bias[i];
    }
    return;
  }
  thread_local IntegerPanel panels[kPanels];
  thread_local Room<float> totals_room;
  const std::size_t columns = x.tiles * kColumns;
  auto* totals = reinterpret_cast<float(*)[kRows]>(totals_room.at_least(kPanels * columns * kRows));
  for (std::size_t begin = task.begin; begin < task.end; begin += kPanels * kRows) {
    const std::size_t count = std::min(kPanels * kRows, task.end - begin);
    const std::size_t used = (count + kRows - 1) / kRows;
    auto rows_of = [&](std::size_t p) { return std::min(kRows, count - p * kRows); };
    std::fill_n(totals[0], used * columns * kRows, 0.0f);
    for (std::size_t span = 0; span < spans_of(w.cols); ++span) {
      for (std::size_t p = 0; p < used; ++p) {
        fill_panel(w.type, w.row(begin + p * kRows), w.row_bytes, rows_of(p), w.cols, span,
                   kPanels * kRows, panels[p]);
      }
      for (std::size_t t = 0; t < x.tiles; ++t) {
        for (std::size_t p = 0; p < used; ++p) {
          multiply_panel(w.type, panels[p], x.many[span * x.tiles + t],
                         std::min(kColumns, x.rows - t * kColumns), t == 0,
                         totals + p * columns + t * kColumns);
        }
      }
    }
    for (std::size_t p = 0; p < used; ++p) {
      const std::size_t first = begin + p * kRows;
      for (std::size_t j = 0; j < x.rows; ++j) {
        float* sums = out.row(j) + first;
        std::copy_n(totals[p * columns + j], rows_of(p), sums);
        for (std::size_t r = 0; w.bias != nullptr && r < rows_of(p); ++r) {
          sums[r] += w.bias[first + r];
        }
      }
    }
  }
}

bool wanted(std::span<const Product> products, bool (*multiplies)(TensorType)) {
  return std::ranges::any_of(products,
                             [&](const Product& p) { return multiplies(p.linear->type); });
}

/// The activations rounded to bfloat16, when a product wants them so.
Bf16Matrix rounded(ConstMatrix x, std::span<const Product> products) {
  if (!wanted(products, multiplies_bf16)) return {};
  thread_local Room<std::uint16_t> room;
  const std::size_t stride = bf16_stride(x.cols);
  std::uint16_t* data = room.at_least(x.rows * stride);
  parallel_for(
      x.rows, [&](std::size_t i) { round_to_bf16(x.row(i), x.cols, data + i * stride); },
      x.rows * x.cols >= 4 * kTaskWork);
  return {data, x.rows, x.cols, stride};
}

/// The activations as integers, when products want them so.
IntegerMatrix in_integers(ConstMatrix x, std::span<const Product> products) {
  constexpr std::size_t kColumns = IntegerTile::kColumns;
  thread_local Room<IntegerSpan> span_room;
  thread_local Room<LaneSpan> lane_room;
  thread_local Room<IntegerTile> tile_room;
  auto wanted = [&](Way way) {
    return std::ranges::any_of(products, [&](const Product& p) {
      return multiplies_integers(p.linear->type) && way_of(p.linear->type, x.rows) == way;
    });
  };
  const std::size_t spans = spans_of(x.cols), tiles = tiles_of(x.rows);
  IntegerMatrix out;
  out.rows = x.rows;
  if (wanted(Way::rows)) {
    IntegerSpan* to = span_room.at_least(x.rows * spans);
    parallel_for(
        x.rows, [&](std::size_t i) { round_to_integers(x.row(i), x.cols, to + i * spans); },
        x.rows * x.cols >= kTaskWork / 4);
    out.spans = to;
  }
  if (wanted(Way::lanes)) {
    LaneSpan* to = lane_room.at_least(x.rows * spans);
    parallel_for(
        x.rows, [&](std::size_t i) { round_to_lanes(x.row(i), x.cols, to + i, x.rows); },
        x.rows * x.cols >= kTaskWork / 4);
    out.lane_spans = to;
  }
  if (wanted(Way::panels)) {
    IntegerTile* to = tile_room.at_least(spans * tiles);
    parallel_for(
        tiles,
        [&](std::size_t t) {
          const std::size_t first = t * kColumns;
          round_to_tiles(x.slice(first, std::min(kColumns, x.rows - first)), to + t, tiles);
        },
        x.rows * x.cols >= kTaskWork);
    out.many = to;
    out.tiles = tiles;
  }
  return out;
}

/// Rows of a task are these or a multiple of them.
std::size_t rows_at_once(TensorType type, std::size_t columns) {
  if (!multiplies_integers(type)) return kBf16Rows;
  switch (way_of(type, columns)) {
    case Way::rows:
      return kTileRows;
    case Way::lanes:
      return 2 * kLaneRows;
    default:
      return kPanels * IntegerPanel::kRows;
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
  if (has_row_reader(type)) return unpack_row(type, row(i), cols, out.data());
  decode(type, {row(i), row_bytes}, out);
}

std::size_t multiply_scratch(TensorType type, std::size_t cols, std::size_t rows) {
  const auto workers = static_cast<std::size_t>(threads());
  if (multiplies_integers(type)) {
    const std::size_t spans = rows * spans_of(cols);
    const Way way = way_of(type, rows);
    if (way == Way::rows) return spans * sizeof(IntegerSpan);
    if (way == Way::lanes) return spans * sizeof(LaneSpan);
    constexpr std::size_t kTotals =
        kPanels * IntegerTile::kColumns * IntegerPanel::kRows * sizeof(float);
    return tiles_of(rows) * (spans_of(cols) * sizeof(IntegerTile) + workers * kTotals) +
           workers * kPanels * sizeof(IntegerPanel);
  }
  if (!multiplies_bf16(type)) {
    return type == TensorType::f32 || rows < kUnpackFrom ? 0 : workers * kPanel * sizeof(float);
  }
  const std::size_t row = bf16_stride(cols) * sizeof(std::uint16_t);
  constexpr std::size_t kLanes =
      (kBf16Rows + Bf16Tile::kRows) * Bf16Tile::kColumns * Bf16Tile::kLanes * sizeof(float);
  return rows * row + (rows > 1 ? workers * (kBf16Rows * row + kLanes) : 0);
}

void multiply(ConstMatrix x, std::span<const Product> products) {
  if (x.rows == 0) return;
  const Bf16Matrix x16 = rounded(x, products);
  const IntegerMatrix integers = in_integers(x, products);
  // Enough tasks that threads finish together, and no more: each begins with a call or two.
  constexpr std::size_t kMostTasks = 1024, kOfAThread = 16;
  Task tasks[kMostTasks];
  std::size_t count = 0, work = 0;
  for (const Product& p : products) work += p.linear->rows * p.linear->cols * x.rows;
  const auto workers = static_cast<std::size_t>(threads());
  const std::size_t most = std::min(kOfAThread * workers, kMostTasks / 2 - 2 * products.size());
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
    if (multiplies_integers(type)) return run_integers(tasks[i], integers);
    if (multiplies_bf16(type)) return run_bf16(tasks[i], x16);
    run_float(tasks[i], x);
  };
  parallel_shares(count, run, work >= 8 * kTaskWork);
}

}  // namespace ballast
