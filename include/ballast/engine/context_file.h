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

/// Throws Error when the file is damaged, was not written by save_context(), or is of another
/// model, which it names. `text`: is given the tokens read; `about` likewise; empty if the file
/// does not have them. All of it is covered by the file's sum.
Cache load_context(const std::filesystem::path& path, const Model& model,
                   std::string* form = nullptr, std::vector<Token>* text = nullptr,
                   std::string* about = nullptr);

}  // namespace ballast
