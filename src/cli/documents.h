// The texts that --context names: files, folders, PDF, web pages.
#pragma once

#include <span>
#include <string>
#include <vector>

namespace ballast::cli {

struct Documents {
  std::string text;
  std::string what;  ///< for people: "book.txt", "12 pages of a.pdf", "3 files"
};

/// One text of all. A file that is the only one stands as it is; of several, and of the pages of a
/// PDF, each begins with a line of its name: "=== a.pdf, page 3 ===". Of a folder all texts are
/// read, in the order of their names, and a note says what is left out unless `quiet`; "-" is
/// standard input. Throws Error for what cannot be read, is no text or has none.
Documents read_documents(std::span<const std::string> paths, bool quiet);

/// The texts of a file, or of each file in a folder, as read_documents() reads them; what each is:
/// its name, in a folder with the path from there.
std::vector<Documents> read_each(const std::string& path, bool quiet);

/// The text of standard input if that is a file or a pipe; empty if it is a terminal or blank. Says
/// that it waits, unless `quiet`.
std::string piped_text(bool quiet);

}  // namespace ballast::cli
