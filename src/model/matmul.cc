#include "model/matmul.h"

#include <algorithm>

#include "base/fail.h"
#include "base/parallel.h"
#include "model/row_dots.h"

namespace ballast {
namespace {

/// Activations from which on rows are unpacked once instead of in every tile.
constexpr std::size_t kUnpackFrom = 2 * kTileColumns;
/// Floats of unpacked rows at a time: they stay in the second-level cache.
constexpr std::size_t kPanel = 64 * 1024;
/// Multiplications that are worth a task.
constexpr std::size_t kTaskWork = 128 * 1024;

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
  tile.ahead = kTileRows * product.linear->row_bytes;
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

void run(const Task& task, ConstMatrix x) {
  const Linear& w = *task.product->linear;
  const std::size_t count = task.end - task.begin;
  const bool unpack =
      !has_row_reader(w.type) || (w.type != TensorType::f32 && x.rows >= kUnpackFrom);
  if (!unpack) {
    auto row = [&](std::size_t i) { return w.row(task.begin + i); };
    return dot_rows(w.type, row, task.begin, count, x, *task.product);
  }
  // One buffer a thread, kept: a decoding step allocates nothing.
  thread_local AlignedArray<float> panel;
  thread_local std::size_t panel_size = 0;
  const std::size_t at_once =
      std::min(count, round_to_tiles(kPanel / std::max<std::size_t>(1, w.cols)));
  if (panel_size < at_once * w.cols) {
    panel = allocate_aligned<float>(at_once * w.cols);
    panel_size = at_once * w.cols;
  }
  for (std::size_t done = 0; done < count; done += at_once) {
    const std::size_t now = std::min(at_once, count - done);
    for (std::size_t i = 0; i < now; ++i) {
      w.decode_row(task.begin + done + i, {panel.get() + i * w.cols, w.cols});
    }
    auto row = [&](std::size_t i) {
      return reinterpret_cast<const std::byte*>(panel.get() + i * w.cols);
    };
    dot_rows(TensorType::f32, row, task.begin + done, now, x, *task.product);
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

void multiply(ConstMatrix x, std::span<const Product> products) {
  if (x.rows == 0) return;
  // Enough tasks for threads to share fairly, each worth its start.
  constexpr std::size_t kMostTasks = 256;
  Task tasks[kMostTasks];
  std::size_t count = 0, work = 0;
  for (const Product& p : products) work += p.linear->rows * p.linear->cols * x.rows;
  const std::size_t size = std::max(kTaskWork, work / (kMostTasks - 2 * products.size()) + 1);
  for (const Product& p : products) {
    const Linear& w = *p.linear;
    const std::size_t rows =
        round_to_tiles(size / std::max<std::size_t>(1, w.cols * x.rows) + kTileRows);
    for (std::size_t begin = 0; begin < w.rows; begin += rows) {
      tasks[count++] = {&p, begin, std::min(w.rows, begin + rows)};
    }
  }
  parallel_for(
      count, [&](std::size_t i) { run(tasks[i], x); }, work >= 4 * kTaskWork);
}

}  // namespace ballast
