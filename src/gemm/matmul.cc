#include "gemm/matmul.h"

#include <algorithm>

#include "ballast/threads.h"
#include "base/fail.h"
#include "base/parallel.h"
#include "gemm/float_dot.h"
#include "gemm/int_gemm.h"

namespace ballast {
namespace {

/// Activations from which on rows are unpacked once instead of in every tile.
constexpr std::size_t kUnpackFrom = 2 * kTileColumns;
/// Numbers of rows that are multiplied as floats at a time: they stay in the second-level cache.
constexpr std::size_t kPanel = 64 * 1024;
/// Bytes of weights that a decoding step asks for ahead, and what four rows more make of it.
constexpr std::size_t kAhead = 24 * 1024;
/// Panels of integers that share what is read of the activations, which need not fit the
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

/// How weights are multiplied as integers: as they lie, rows by themselves (words: those of 16-bit
/// floats) or kLaneRows rows side by side, or from panels.
enum class Way { rows, words, lanes, panels };
Way way_of(TensorType type, std::size_t columns) {
  if (columns <= most_row_columns(type)) return is_quantized(type) ? Way::rows : Way::words;
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
  const std::size_t at_once =
      std::min(count, round_to_tiles(kPanel / std::max<std::size_t>(1, w.cols)));
  thread_local Room<float> room;
  float* panel = unpack ? room.at_least(at_once * w.cols) : nullptr;
  for (std::size_t done = 0; done < count; done += at_once) {
    const std::size_t first = task.begin + done, now = std::min(at_once, count - done);
    if (!unpack) {
      auto row = [&](std::size_t i) { return w.row(first + i); };
      dot_rows(w.type, row, first, now, x, *task.product);
      continue;
    }
    for (std::size_t i = 0; i < now; ++i) w.decode_row(first + i, {panel + i * w.cols, w.cols});
    auto row = [&](std::size_t i) {
      return reinterpret_cast<const std::byte*>(panel + i * w.cols);
    };
    dot_rows(TensorType::f32, row, first, now, x, *task.product);
  }
}

/// Activations as integers, for those ways that a product of the call wants. Tile t of span s is at
/// s · tiles + t.
struct IntegerMatrix {
  std::size_t rows = 0, tiles = 0;
  const IntegerSpan* spans = nullptr;    ///< of an activation, then of the next
  const WordSpan* word_spans = nullptr;  ///< likewise
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
    } else if (way == Way::words) {
      integer_dots(w.type, rows, w.row_bytes, count, w.cols, x.word_spans, x.rows, sums,
                   out.stride);
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

/// The activations as integers, when products want them so.
IntegerMatrix in_integers(ConstMatrix x, std::span<const Product> products) {
  constexpr std::size_t kColumns = IntegerTile::kColumns;
  thread_local Room<IntegerSpan> span_room;
  thread_local Room<WordSpan> word_room;
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
  const auto round_rows = [&](auto& room) {
    auto* to = room.at_least(x.rows * spans);
    parallel_for(
        x.rows, [&](std::size_t i) { round_to_integers(x.row(i), x.cols, to + i * spans); },
        x.rows * x.cols >= kTaskWork / 4);
    return to;
  };
  if (wanted(Way::rows)) out.spans = round_rows(span_room);
  if (wanted(Way::words)) out.word_spans = round_rows(word_room);
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
  if (!multiplies_integers(type)) return kTileRows;
  switch (way_of(type, columns)) {
    case Way::rows:
    case Way::words:
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
    if (way == Way::words) return spans * sizeof(WordSpan);
    if (way == Way::lanes) return spans * sizeof(LaneSpan);
    constexpr std::size_t kTotals =
        kPanels * IntegerTile::kColumns * IntegerPanel::kRows * sizeof(float);
    return tiles_of(rows) * (spans_of(cols) * sizeof(IntegerTile) + workers * kTotals) +
           workers * kPanels * sizeof(IntegerPanel);
  }
  return type == TensorType::f32 || rows < kUnpackFrom ? 0 : workers * kPanel * sizeof(float);
}

void multiply(ConstMatrix x, std::span<const Product> products) {
  if (x.rows == 0) return;
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
    run_float(tasks[i], x);
  };
  parallel_ranges(count, run, work >= 2 * kTaskWork);
}

}  // namespace ballast
