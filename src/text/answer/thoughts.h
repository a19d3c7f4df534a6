// What a model thinks before it answers.
#pragma once

#include <string>
#include <string_view>

namespace ballast {

/// Takes the thoughts out of an answer that comes in pieces: what stands between <think> at its
/// beginning and </think>. Blanks around thoughts, and after them, are left out, unless all is
/// kept: then they and the tags are part of the thoughts.
class ThoughtReader {
 public:
  struct Parts {
    std::string thoughts;
    std::string answer;
  };

  static constexpr std::string_view kMarks[] = {"<think>", "</think>"};

  /// `open`: the prompt ends with <think>. `keeps`: all is kept.
  explicit ThoughtReader(bool open, bool keeps = false)
      : place_(open ? Place::opened : Place::before), keeps_(keeps) {}

  /// Whether the answer is still to come.
  bool thinks() const { return place_ == Place::opened || place_ == Place::within; }
  /// What is certain.
  Parts push(std::string_view piece);
  /// The rest, at the end of the answer.
  Parts finish();

 private:
  enum class Place { before, opened, within, after, answer };
  Parts read(bool ends);

  Place place_;
  bool keeps_;
  std::string held_;
  std::size_t blanks_ = 0;  ///< of held_, while within: as many bytes of blanks begin it
};

}  // namespace ballast
