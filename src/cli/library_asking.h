// A library that is asked on the command line: `library ask`, `run --library`, `chat --library`.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "cli/command.h"
#include "library/asking.h"

namespace ballast::cli {

/// Where the user's library is if no other is named.
std::filesystem::path user_library();

/// What is there, with a note for each damaged document unless `quiet`.
std::shared_ptr<const LibraryContent> content_of(Library& library, bool quiet);

/// The lines of a file but empty ones. Throws Error if there are none.
std::vector<std::string> questions_in(const std::string& file, bool quiet);

struct LibraryQuestions {
  std::filesystem::path folder;
  std::string model;
  std::vector<std::string> questions = {};
  bool list = false;  ///< JSON has "answers", also of one question
  AskOptions ask;
  bool quiet = false;
};

/// Answers them on standard output, or as JSON. Throws Error if there are no documents, or none of
/// this model.
void ask_library(const LibraryQuestions& questions, JsonOption& json);

/// The same for lines as they are typed, until /quit or the end.
void chat_with_library(const LibraryQuestions& about);

/// --library DIR, which excludes the options of a cache and those named.
void add_library_option(CLI::App& app, std::string& folder,
                        std::initializer_list<const char*> others);

}  // namespace ballast::cli
