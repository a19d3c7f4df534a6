// Reading and writing safetensors files (github.com/huggingface/safetensors, format 0.x).
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ballast/engine/tensor.h"

namespace ballast {

class MappedFile;
class OutputFile;
class TensorStream;

/// The tensors of one file, or of a model split over several. Files are memory-mapped: opening
/// reads only the headers, and views stay valid as long as this object (or what it was moved to).
class Safetensors {
 public:
  /// `path` is a .safetensors file, a model.safetensors.index.json, or a folder that holds either.
  /// Throws Error that names the file, the tensor and what is wrong: not a safetensors file,
  /// truncated, dtypes unknown, shapes that do not match the bytes, overlaps, duplicates.
  explicit Safetensors(const std::filesystem::path& path);
  ~Safetensors();
  Safetensors(Safetensors&&) noexcept;
  Safetensors& operator=(Safetensors&&) noexcept;

  /// In the order of the bytes in the file; shards one after another.
  const std::vector<TensorView>& tensors() const { return tensors_; }
  /// Null if there is none of that name.
  const TensorView* find(std::string_view name) const;
  /// Throws Error if there is none of that name.
  const TensorView& at(std::string_view name) const;
  /// The `__metadata__` of the (first) file.
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  const std::filesystem::path& path() const { return path_; }
  /// The files that are mapped.
  std::vector<std::filesystem::path> files() const;

 private:
  void open_file(const std::filesystem::path& path);
  void open_index(const std::filesystem::path& path);

  std::filesystem::path path_;
  std::vector<MappedFile> files_;
  std::vector<TensorView> tensors_;
  std::map<std::string, std::size_t, std::less<>> by_name_;
  std::map<std::string, std::string> metadata_;
};

/// Writes a safetensors file front to back, holding no tensor in memory. The file appears, whole,
/// on commit(); without it nothing is left behind.
class SafetensorsWriter {
 public:
  struct Declaration {
    std::string name;
    TensorType type = TensorType::f32;
    std::vector<std::size_t> shape;  ///< outermost first
  };

  /// The format begins with a table of all tensors, so they are declared first. Declare wider types
  /// before narrower ones to keep all of them aligned.
  /// Throws Error if the file cannot be made, or names repeat or are reserved.
  SafetensorsWriter(const std::filesystem::path& path, const std::vector<Declaration>& tensors,
                    const std::map<std::string, std::string>& metadata = {});
  ~SafetensorsWriter();
  SafetensorsWriter(SafetensorsWriter&&) noexcept;
  SafetensorsWriter& operator=(SafetensorsWriter&&) noexcept;

  /// The next bytes, in the order declared: tensors may be written in pieces of any size.
  void write(std::span<const std::byte> bytes);
  /// The next numbers, all of one tensor, converted to its type (see encode()).
  void write(std::span<const float> numbers);
  /// Throws Error if anything declared is missing or the disk is full.
  void commit();

 private:
  std::unique_ptr<OutputFile> file_;
  std::unique_ptr<TensorStream> stream_;
};

}  // namespace ballast
