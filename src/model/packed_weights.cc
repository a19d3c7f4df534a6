#include "model/packed_weights.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstdint>
#include <cstring>

#include "base/fail.h"
#include "base/printable.h"
#include "base/thread_pool.h"
#include "formats/half.h"

namespace ballast {
namespace {

constexpr std::size_t kBlock = 32;  ///< columns of a block of Q4_0, Q4_1 and Q8_0

/// One row as codes, with the scale and the zero point of every column.
struct Row {
  std::vector<float> codes, scales, zeros;  ///< number = (code - zero) * scale
};

/// How one of the forms lies in its tensors.
class Form {
 public:
  virtual ~Form() = default;
  virtual void read(std::size_t row, Row& out) const = 0;

  std::size_t rows = 0, columns = 0;
  std::size_t bits = 8;  ///< of whole codes; 0: codes are no integers
};

float number(const TensorView& tensor, std::size_t i) {
  float out = 0;
  const std::size_t bytes = block_bytes(tensor.type);
  decode(tensor.type, tensor.data.subspan(i * bytes, bytes), {&out, 1});
  return out;
}

std::uint32_t word(const TensorView& tensor, std::size_t i) {
  std::uint32_t out = 0;
  std::memcpy(&out, tensor.data.data() + i * sizeof(out), sizeof(out));
  return out;
}

class Reader {
 public:
  Reader(const std::function<const TensorView*(const std::string&)>& find, std::string stem,
         std::string file)
      : find_(find), stem_(std::move(stem)), file_(std::move(file)) {}

  const TensorView* find(const char* suffix) const { return find_(stem_ + suffix); }
  const TensorView& at(const char* suffix) const {
    const TensorView* found = find(suffix);
    require(found != nullptr, "{}: the tensor '{}{}' is missing", file_, printable(stem_), suffix);
    return *found;
  }
  /// `shape` must be that of the tensor.
  void check(const TensorView& tensor, const std::vector<std::size_t>& shape) const {
    require(tensor.shape == shape, "{}: the tensor '{}' has shape {}, expected {}", file_,
            printable(tensor.name), to_string(tensor.shape), to_string(shape));
  }
  void check_matrix(const TensorView& tensor, bool fits) const {
    require(tensor.shape.size() == 2 && tensor.shape[0] > 0 && tensor.shape[1] > 0 && fits,
            "{}: the tensor '{}' of type {} and shape {} holds no weights of a known form", file_,
            printable(tensor.name), to_string(tensor.type), to_string(tensor.shape));
  }
  const std::string& file() const { return file_; }

 private:
  const std::function<const TensorView*(const std::string&)>& find_;
  std::string stem_, file_;
};

/// Scales of a matrix: one, one a row, or of blocks of rows and columns of equal sizes.
class Scales {
 public:
  Scales() = default;
  Scales(const Reader& reader, const TensorView& tensor, std::size_t rows, std::size_t columns)
      : tensor_(&tensor) {
    if (tensor.size() == 1) {
      row_block_ = rows;
      column_block_ = columns;
      return;
    }
    std::vector<std::size_t> shape = tensor.shape;
    if (shape.size() == 1) shape.push_back(1);
    const bool fits = shape.size() == 2 && shape[0] > 0 && shape[1] > 0 && shape[0] <= rows &&
                      shape[1] <= columns;
    // Blocks are powers of two, the last of which may be cut; else they divide the whole.
    const auto block = [](std::size_t whole, std::size_t parts) {
      const std::size_t size = std::bit_ceil((whole + parts - 1) / parts);
      return (whole + size - 1) / size == parts ? size : whole / parts;
    };
    if (fits) {
      row_block_ = block(rows, shape[0]);
      column_block_ = block(columns, shape[1]);
      across_ = shape[1];
    }
    require(fits && (rows + row_block_ - 1) / row_block_ == shape[0] &&
                (columns + column_block_ - 1) / column_block_ == shape[1],
            "{}: the tensor '{}' has shape {} for {} × {} weights", reader.file(),
            printable(tensor.name), to_string(tensor.shape), rows, columns);
  }
  float at(std::size_t row, std::size_t column) const {
    return number(*tensor_, row / row_block_ * across_ + column / column_block_);
  }
  std::size_t columns() const { return column_block_; }

 private:
  const TensorView* tensor_ = nullptr;
  std::size_t row_block_ = 1, column_block_ = 1, across_ = 1;
};

/// F8_E4M3 or I8, an element a byte.
class Bytes : public Form {
 public:
  Bytes(const Reader& reader, const TensorView& weight, const TensorView& scales)
      : weight_(weight) {
    reader.check_matrix(weight, true);
    rows = weight.shape[0];
    columns = weight.shape[1];
    bits = weight.type == TensorType::i8 ? 8 : 0;
    scales_ = Scales(reader, scales, rows, columns);
    if (const TensorView* zeros = reader.find(".weight_zero_point")) {
      zeros_ = Scales(reader, *zeros, rows, columns);
      has_zeros_ = true;
    }
  }
  void read(std::size_t row, Row& out) const override {
    decode(weight_.type, weight_.data.subspan(row * columns, columns), out.codes);
    for (std::size_t c = 0; c < columns; c += scales_.columns()) {
      const std::size_t end = std::min(columns, c + scales_.columns());
      std::fill(out.scales.begin() + static_cast<std::ptrdiff_t>(c),
                out.scales.begin() + static_cast<std::ptrdiff_t>(end), scales_.at(row, c));
    }
    for (std::size_t c = 0; c < columns; ++c) out.zeros[c] = has_zeros_ ? zeros_.at(row, c) : 0;
  }

 private:
  const TensorView& weight_;
  Scales scales_, zeros_;
  bool has_zeros_ = false;
};

/// compressed-tensors: codes of a row side by side in words, from the lowest bits; signed codes
/// have 2^(bits-1) added, and so have zero points, which lie side by side along the rows.
class PackedRows : public Form {
 public:
  PackedRows(const Reader& reader, const TensorView& packed, const TensorView& scales)
      : packed_(packed) {
    const TensorView& shape = reader.at(".weight_shape");
    reader.check(shape, {2});
    reader.check_matrix(packed, packed.type == TensorType::i32);
    rows = packed.shape[0];
    const float wide = number(shape, 1);
    columns = wide >= 1 && wide < 1e9f ? static_cast<std::size_t>(wide) : 0;
    words_ = packed.shape[1];
    bits = words_ == (columns + 7) / 8 ? 4 : 8;
    reader.check_matrix(packed, columns > 0 && number(shape, 0) == static_cast<float>(rows) &&
                                    words_ == (columns * bits + 31) / 32);
    scales_ = Scales(reader, scales, rows, columns);
    zeros_ = reader.find(".weight_zero_point");
    if (zeros_ != nullptr) {
      groups_ = (columns + scales_.columns() - 1) / scales_.columns();
      require(zeros_->type == TensorType::i32, "{}: the tensor '{}' has type {}, expected I32",
              reader.file(), printable(zeros_->name), to_string(zeros_->type));
      reader.check(*zeros_, {(rows * bits + 31) / 32, groups_});
    }
  }
  void read(std::size_t row, Row& out) const override {
    const std::size_t each = 32 / bits, mask = (std::size_t{1} << bits) - 1;
    for (std::size_t c = 0; c < columns; ++c) {
      out.codes[c] =
          static_cast<float>(word(packed_, row * words_ + c / each) >> bits * (c % each) & mask);
      if (c % scales_.columns() != 0) {
        out.scales[c] = out.scales[c - 1];
        out.zeros[c] = out.zeros[c - 1];
        continue;
      }
      out.scales[c] = scales_.at(row, c);
      const std::size_t group = c / scales_.columns();
      out.zeros[c] = static_cast<float>(
          zeros_ == nullptr
              ? std::size_t{1} << (bits - 1)
              : word(*zeros_, row / each * groups_ + group) >> bits * (row % each) & mask);
    }
  }

 private:
  const TensorView& packed_;
  const TensorView* zeros_ = nullptr;
  Scales scales_;
  std::size_t words_ = 0, groups_ = 0;
};

/// compressed-tensors' NVFP4: two numbers of 4 bits a byte, the first in the low ones; an F8_E4M3
/// scale for 16 of them, all divided by one number.
class Nvfp4 : public Form {
 public:
  Nvfp4(const Reader& reader, const TensorView& packed, const TensorView& scales)
      : packed_(packed), global_(number(reader.at(".weight_global_scale"), 0)) {
    reader.check_matrix(packed, packed.type == TensorType::u8);
    rows = packed.shape[0];
    columns = 2 * packed.shape[1];
    bits = 0;
    scales_ = Scales(reader, scales, rows, columns);
  }
  void read(std::size_t row, Row& out) const override {
    constexpr std::array<float, 8> kNumbers = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
    for (std::size_t c = 0; c < columns; ++c) {
      const auto byte = static_cast<unsigned>(packed_.data[(row * columns + c) / 2]);
      const unsigned code = byte >> 4 * (c % 2) & 15;
      out.codes[c] = (code & 8) != 0 ? -kNumbers[code & 7] : kNumbers[code & 7];
      out.scales[c] = scales_.at(row, c) / global_;
      out.zeros[c] = 0;
    }
  }

 private:
  const TensorView& packed_;
  Scales scales_;
  float global_;
};

/// GPTQ and AWQ: words are of [in, out] matrices, scales [groups, out]. GPTQ packs along the
/// inputs, AWQ along the outputs in an order of its own; zero points are packed along the outputs.
class Columns : public Form {
 public:
  Columns(const Reader& reader, const TensorView& packed, bool zeros_are_less_one)
      : packed_(packed), scales_(reader.at(".scales")), zeros_(reader.at(".qzeros")) {
    const bool fits = packed.type == TensorType::i32 && scales_.shape.size() == 2 &&
                      zeros_.shape.size() == 2 && zeros_.type == TensorType::i32 &&
                      scales_.shape[0] > 0 && zeros_.shape[0] == scales_.shape[0];
    reader.check_matrix(packed, fits);
    rows = scales_.shape[1];
    groups_ = scales_.shape[0];
    bits = rows > 0 ? zeros_.shape[1] * 32 / rows : 0;
    reader.check_matrix(packed, (bits == 4 || bits == 8) && zeros_.shape[1] * 32 == rows * bits);
    const std::size_t each = 32 / bits;
    awq_ = packed.shape[1] * each == rows;
    reader.check_matrix(packed, awq_ ? bits == 4 : packed.shape[1] == rows);
    columns = awq_ ? packed.shape[0] : packed.shape[0] * each;
    less_one_ = !awq_ && zeros_are_less_one;
    group_of_.resize(columns);
    const TensorView* order = reader.find(".g_idx");
    if (order != nullptr) reader.check(*order, {columns});
    for (std::size_t c = 0; c < columns; ++c) {
      const float at = order != nullptr
                           ? number(*order, c)
                           : static_cast<float>(c / ((columns + groups_ - 1) / groups_));
      require(at >= 0 && at < static_cast<float>(groups_),
              "{}: the tensor '{}' names group {} of {}", reader.file(),
              printable(order != nullptr ? order->name : packed.name), at, groups_);
      group_of_[c] = static_cast<std::uint32_t>(at);
    }
  }
  void read(std::size_t row, Row& out) const override {
    constexpr std::array<std::size_t, 8> kPlace = {0, 4, 1, 5, 2, 6, 3, 7};  // AWQ's, of a row
    const std::size_t each = 32 / bits, mask = (std::size_t{1} << bits) - 1, across = rows / each;
    const std::size_t place = bits * (awq_ ? kPlace[row % each] : row % each);
    for (std::size_t c = 0; c < columns; ++c) {
      const std::uint32_t codes = awq_ ? word(packed_, c * across + row / each) >> place
                                       : word(packed_, c / each * rows + row) >> bits * (c % each);
      out.codes[c] = static_cast<float>(codes & mask);
      const std::size_t group = group_of_[c];
      if (c > 0 && group == group_of_[c - 1]) {
        out.scales[c] = out.scales[c - 1];
        out.zeros[c] = out.zeros[c - 1];
        continue;
      }
      out.scales[c] = number(scales_, group * rows + row);
      const std::size_t zero = word(zeros_, group * across + row / each) >> place & mask;
      out.zeros[c] = static_cast<float>(less_one_ ? (zero + 1) & mask : zero);
    }
  }

 private:
  const TensorView& packed_;
  const TensorView& scales_;
  const TensorView& zeros_;
  std::vector<std::uint32_t> group_of_;
  std::size_t groups_ = 0;
  bool awq_ = false, less_one_ = false;
};

void put_f16(std::byte* out, float x) {
  const std::uint16_t bits = float_to_f16(x);
  std::memcpy(out, &bits, sizeof(bits));
}

/// Whether the columns of every block share scale and zero point, the codes' bits being whole.
bool keeps_codes(const Row& row, std::size_t begin) {
  for (std::size_t c = begin + 1; c < begin + kBlock; ++c) {
    if (row.scales[c] != row.scales[begin] || row.zeros[c] != row.zeros[begin]) return false;
  }
  return true;
}

/// Writes a block with the codes that it has; q8_0 with codes less the zero point.
void put_codes(TensorType type, const Row& row, std::size_t begin, std::byte* out) {
  const float* codes = row.codes.data() + begin;
  const float scale = row.scales[begin], zero = row.zeros[begin];
  put_f16(out, scale);
  out += 2;
  if (type == TensorType::q8_0) {
    for (std::size_t i = 0; i < kBlock; ++i) {
      out[i] = static_cast<std::byte>(static_cast<std::int8_t>(codes[i] - zero));
    }
    return;
  }
  if (type == TensorType::q4_1) {
    put_f16(out, -zero * scale);
    out += 2;
  }
  for (std::size_t i = 0; i < kBlock / 2; ++i) {
    out[i] = static_cast<std::byte>(static_cast<unsigned>(codes[i]) |
                                    static_cast<unsigned>(codes[i + kBlock / 2]) << 4);
  }
}

UnpackedMatrix unpack(const Form& form, const std::string& stem, const std::string& file) {
  require(form.columns % kBlock == 0,
          "{}: the matrix '{}' has {} columns; quantized ones are read in blocks of {}", file,
          printable(stem), form.columns, kBlock);
  const auto with_row = [&](std::size_t r, auto use) {
    thread_local Row row;
    for (std::vector<float>* part : {&row.codes, &row.scales, &row.zeros})
      part->resize(form.columns);
    form.read(r, row);
    use(row);
  };
  // The codes are kept if they fit the type in every block.
  std::atomic<bool> keeps = form.bits != 0, centred = true;
  if (form.bits != 0) {
    parallel_for(form.rows, [&](std::size_t r) {
      with_row(r, [&](const Row& row) {
        for (std::size_t c = 0; c < form.columns; c += kBlock) {
          if (!keeps_codes(row, c)) keeps = false;
          if (row.zeros[c] != 8) centred = false;
          if (form.bits == 8) {
            for (std::size_t i = c; i < c + kBlock; ++i) {
              if (std::abs(row.codes[i] - row.zeros[i]) > 127) keeps = false;
            }
          }
        }
      });
    });
  }
  UnpackedMatrix out;
  out.shape = {form.rows, form.columns};
  out.type = form.bits != 4 || !keeps ? TensorType::q8_0
             : centred                ? TensorType::q4_0
                                      : TensorType::q4_1;
  const std::size_t row_bytes = tensor_bytes(out.type, form.columns);
  out.data.resize(form.rows * row_bytes);
  parallel_for(form.rows, [&](std::size_t r) {
    with_row(r, [&](Row& row) {
      std::byte* to = out.data.data() + r * row_bytes;
      if (keeps) {
        for (std::size_t c = 0; c < form.columns; c += kBlock) {
          put_codes(out.type, row, c, to + c / kBlock * block_bytes(out.type));
        }
        return;
      }
      for (std::size_t c = 0; c < form.columns; ++c) {
        row.codes[c] = (row.codes[c] - row.zeros[c]) * row.scales[c];
      }
      encode(out.type, row.codes, {to, row_bytes});
    });
  });
  return out;
}

}  // namespace

std::optional<UnpackedMatrix> unpack_matrix(
    const std::function<const TensorView*(const std::string& name)>& find, const std::string& stem,
    const std::function<bool()>& zeros_are_less_one, const std::string& file) {
  const Reader reader(find, stem, file);
  if (const TensorView* packed = reader.find(".qweight")) {
    return unpack(Columns(reader, *packed, zeros_are_less_one()), stem, file);
  }
  const TensorView* scales = reader.find(".weight_scale");
  if (scales == nullptr) scales = reader.find(".weight_scale_inv");
  if (scales == nullptr) return std::nullopt;
  if (const TensorView* packed = reader.find(".weight_packed")) {
    if (packed->type == TensorType::u8) return unpack(Nvfp4(reader, *packed, *scales), stem, file);
    return unpack(PackedRows(reader, *packed, *scales), stem, file);
  }
  const TensorView* weight = reader.find(".weight");
  if (weight == nullptr ||
      (weight->type != TensorType::f8_e4m3 && weight->type != TensorType::i8)) {
    return std::nullopt;
  }
  return unpack(Bytes(reader, *weight, *scales), stem, file);
}

}  // namespace ballast
