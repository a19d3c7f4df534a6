#include "ballast/engine/safetensors.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <set>
#include <utility>

#include "base/fail.h"
#include "base/mapped_file.h"
#include "base/output_file.h"
#include "base/printable.h"
#include "formats/json_file.h"
#include "formats/safetensors_header.h"
#include "formats/sniff.h"
#include "formats/tensor_stream.h"

namespace ballast {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kLengthBytes = 8;
/// The reference implementation's limit.
constexpr std::uint64_t kLargestHeader = 100'000'000;

[[noreturn]] void not_safetensors(const MappedFile& file, std::string_view why) {
  std::string_view seems = sniff(file.bytes());
  if (!seems.empty() && seems != "a safetensors file") {
    fail("{}: not a safetensors file; it seems to be {}", file.path().string(), seems);
  }
  fail("{}: not a safetensors file, or damaged: {}", file.path().string(), why);
}

/// The JSON text after the length.
std::string_view header_text(const MappedFile& file) {
  std::span<const std::byte> bytes = file.bytes();
  if (bytes.size() < kLengthBytes + 2) {
    not_safetensors(file, fmt::format("{} bytes are too few", bytes.size()));
  }
  std::uint64_t length;
  std::memcpy(&length, bytes.data(), kLengthBytes);
  std::span<const std::byte> rest = bytes.subspan(kLengthBytes);
  if (rest[0] != std::byte{'{'}) not_safetensors(file, "no JSON at byte 8");
  if (length > kLargestHeader) {
    not_safetensors(file, fmt::format("its header claims {} bytes, over the limit of {}", length,
                                      kLargestHeader));
  }
  if (length > rest.size()) {
    not_safetensors(file, fmt::format("its header claims {} bytes, but {} follow; the file may be "
                                      "truncated",
                                      length, rest.size()));
  }
  return {reinterpret_cast<const char*>(rest.data()), static_cast<std::size_t>(length)};
}

/// The format requires tensors to fill the data without gaps.
void check_layout(const SafetensorsHeader& header, std::size_t data_bytes,
                  const std::string& file) {
  std::size_t end = 0;
  for (const auto& entry : header.tensors) {  // in the order of their offsets
    require(entry.begin >= end, "{}: tensor '{}' overlaps the one before it", file,
            printable(entry.name));
    require(entry.begin == end, "{}: {} bytes before tensor '{}' belong to no tensor", file,
            entry.begin - end, printable(entry.name));
    require(entry.end <= data_bytes,
            "{}: truncated: tensor '{}' ends at byte {} of the data, of which there are {}", file,
            printable(entry.name), entry.end, data_bytes);
    end = entry.end;
  }
  require(end == data_bytes, "{}: {} bytes after the last tensor belong to none", file,
          data_bytes - end);
}

/// The model file of a folder.
fs::path pick_file(const fs::path& folder) {
  for (const char* name : {"model.safetensors.index.json", "model.safetensors"}) {
    if (fs::exists(folder / name)) return folder / name;
  }
  std::vector<fs::path> found;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    if (entry.path().extension() == ".safetensors") found.push_back(entry.path());
  }
  if (error)
    fail(ErrorCode::io, "{}: cannot list the folder: {}", folder.string(), error.message());
  require(!found.empty(), "{}: the folder holds no .safetensors file", folder.string());
  require(found.size() == 1,
          "{}: the folder holds {} .safetensors files but no model.safetensors.index.json; name "
          "the one to read",
          folder.string(), found.size());
  return found[0];
}

}  // namespace

Safetensors::Safetensors(const fs::path& path) try : path_(path) {
  std::error_code ignored;
  fs::path file = fs::is_directory(path, ignored) ? pick_file(path) : path;
  if (file.extension() == ".json") {
    open_index(file);
  } else {
    open_file(file);
  }
} catch (const Error& error) {
  rethrow_from_file(error);
}

Safetensors::~Safetensors() = default;
Safetensors::Safetensors(Safetensors&&) noexcept = default;
Safetensors& Safetensors::operator=(Safetensors&&) noexcept = default;

void Safetensors::open_file(const fs::path& path) {
  MappedFile& file = files_.emplace_back(path);
  std::string_view text = header_text(file);
  SafetensorsHeader header = parse_safetensors_header(text, path.string());
  std::sort(header.tensors.begin(), header.tensors.end(), [](const auto& a, const auto& b) {
    return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
  });
  std::span<const std::byte> data = file.bytes().subspan(kLengthBytes + text.size());
  check_layout(header, data.size(), path.string());
  if (files_.size() == 1) metadata_ = std::move(header.metadata);
  for (auto& entry : header.tensors) {
    bool is_new = by_name_.emplace(entry.name, tensors_.size()).second;
    require(is_new, "{}: tensor '{}' is in another file of the model too", path.string(),
            printable(entry.name));
    tensors_.push_back({std::move(entry.name), entry.type, std::move(entry.shape),
                        data.subspan(entry.begin, entry.end - entry.begin)});
  }
}

void Safetensors::open_index(const fs::path& path) {
  SortedJson index = read_json(path);
  auto map = index.is_object() ? index.find("weight_map") : index.end();
  require(map != index.end() && map->is_object() && !map->empty(),
          "{}: not an index of safetensors files: it has no object 'weight_map'", path.string());
  std::map<std::string, std::vector<std::string>> expected;  // tensors of each file
  for (const auto& [tensor, file] : map->items()) {
    require(file.is_string(), "{}: the file of tensor '{}' is not text", path.string(),
            printable(tensor));
    // Only files beside the index: an untrusted index must not reach other folders.
    fs::path name = file.get<std::string>();
    require(!name.empty() && name == name.filename() && name != "." && name != "..",
            "{}: '{}' is not a plain file name", path.string(), printable(name.string()));
    expected[name.string()].push_back(tensor);
  }
  for (const auto& [file, tensors] : expected) {
    std::size_t before = tensors_.size();
    open_file(path.parent_path() / file);
    for (const std::string& tensor : tensors) {
      auto found = by_name_.find(tensor);
      require(found != by_name_.end() && found->second >= before,
              "{}: tensor '{}' is not in {}, where the index places it", path.string(),
              printable(tensor), file);
    }
  }
}

std::vector<fs::path> Safetensors::files() const {
  std::vector<fs::path> paths;
  for (const MappedFile& file : files_) paths.push_back(file.path());
  return paths;
}

const TensorView* Safetensors::find(std::string_view name) const {
  auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : &tensors_[found->second];
}

const TensorView& Safetensors::at(std::string_view name) const {
  const TensorView* tensor = find(name);
  require(tensor != nullptr, "{}: there is no tensor '{}' among its {}", path_.string(),
          printable(name), tensors_.size());
  return *tensor;
}

SafetensorsWriter::SafetensorsWriter(const fs::path& path, const std::vector<Declaration>& tensors,
                                     const std::map<std::string, std::string>& metadata)
    : stream_(std::make_unique<TensorStream>()) {
  SafetensorsHeader header{{}, metadata};
  std::set<std::string_view> names;
  for (const Declaration& tensor : tensors) {
    require(tensor.name != "__metadata__" && names.insert(tensor.name).second,
            "{}: cannot write a tensor named '{}': the name is taken", path.string(),
            printable(tensor.name));
    require(!is_quantized(tensor.type), "{}: safetensors files cannot hold tensor '{}' of type {}",
            path.string(), printable(tensor.name), to_string(tensor.type));
    TensorStream::Range range =
        stream_->declare(tensor.name, tensor.type, tensor.shape, path.string());
    header.tensors.push_back({tensor.name, tensor.type, tensor.shape, range.begin, range.end});
  }
  std::string text = format_safetensors_header(header);
  file_ = std::make_unique<OutputFile>(path);
  std::uint64_t length = text.size();
  file_->write(std::as_bytes(std::span(&length, 1)));
  file_->write(text);
}

SafetensorsWriter::~SafetensorsWriter() = default;
SafetensorsWriter::SafetensorsWriter(SafetensorsWriter&&) noexcept = default;
SafetensorsWriter& SafetensorsWriter::operator=(SafetensorsWriter&&) noexcept = default;

void SafetensorsWriter::write(std::span<const std::byte> bytes) { stream_->write(*file_, bytes); }

void SafetensorsWriter::write(std::span<const float> numbers) { stream_->write(*file_, numbers); }

void SafetensorsWriter::commit() {
  stream_->finish(*file_);
  file_->commit();
}

}  // namespace ballast
