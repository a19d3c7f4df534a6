// Texts that a model has read, on disk: a document is compressed once and questioned many times.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ballast/cache.h"
#include "ballast/engine/model.h"
#include "ballast/pack.h"

namespace ballast {

/// A number that differs between models, and between the quantizations of one: of its dimensions
/// and of the beginning of every tensor.
std::uint64_t fingerprint(const Model& model);

/// What a model is called, in messages: the name in its file, else the file's.
std::string model_name(const Model& model);

/// Saves a cache with a note that says which model it is of. `form`: whatever the caller needs to
/// go on, such as the text that follows a question. `text`: the tokens read, or nothing. `about`:
/// what else the caller wants to know of it, UTF-8. Throws Error if it cannot be written, or if
/// load_context() would refuse a note of that size.
void save_context(const std::filesystem::path& path, const Model& model, const Cache& cache,
                  std::string_view form = {}, std::span<const Token> text = {},
                  std::string_view about = {});

/// The content of such a file, packed: see pack(). Throws Error if the model has no basis, or the
/// cache has not all tokens.
std::vector<std::byte> pack_context(const Model& model, const Cache& cache,
                                    const PackPreset& preset, std::string_view form = {},
                                    std::span<const Token> text = {}, std::string_view about = {});
/// The same into a file.
void save_packed_context(const std::filesystem::path& path, const Model& model, const Cache& cache,
                         const PackPreset& preset, std::string_view form = {},
                         std::span<const Token> text = {}, std::string_view about = {});

/// Throws Error when the file is damaged, was not written by one of these, or is of another
/// model, which it names. `text`: is given the last tokens read, as many as the file has: none, or
/// those after a picture. `about`: empty if the file does not have it. All of it is covered by the
/// file's sum. `options`: of the cache to be made
/// from a packed context; null: those of the cache that was packed. With options, another file is
/// an Error.
Cache load_context(const std::filesystem::path& path, const Model& model,
                   std::string* form = nullptr, std::vector<Token>* text = nullptr,
                   std::string* about = nullptr, const CacheOptions* options = nullptr);

/// Bytes of the cache that load_context() makes of a file without options, about. Throws Error if
/// the file cannot be read, or is packed and damaged.
std::size_t loaded_bytes(const std::filesystem::path& path);

/// What is known of a saved context.
struct SavedContext {
  std::string form, about;
  std::size_t tokens = 0;
  CacheOptions options;
  bool packed = false;
  std::size_t bytes = 0;        ///< of the cache that load_context() makes
  std::size_t exact_bytes = 0;  ///< Model::exact_bytes()
};
/// Unpacks nothing. Throws Error as load_context() does.
SavedContext describe_context(const std::filesystem::path& path, const Model& model);

}  // namespace ballast
