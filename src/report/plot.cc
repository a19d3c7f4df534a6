#include "report/plot.h"

#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "base/fail.h"
#include "base/output_file.h"

extern char** environ;

namespace ballast {
namespace {

namespace fs = std::filesystem;

struct CloseFile {
  void operator()(std::FILE* file) const { std::fclose(file); }
};
using File = std::unique_ptr<std::FILE, CloseFile>;

std::string_view terminal_of(const fs::path& path) {
  const std::string extension = path.extension().string();
  if (extension == ".svg") return "svg size 900,600 dynamic enhanced background 'white'";
  if (extension == ".png") return "pngcairo size 900,600 enhanced";
  if (extension == ".pdf") return "pdfcairo size 9in,6in enhanced";
  fail("{}: a plot's name ends in .svg, .png or .pdf", path.string());
}

/// Text between gnuplot's double quotes: taken literally, nothing in it is a command.
std::string literal(std::string_view text) {
  std::string out = "\"";
  for (char c : text) {
    if (static_cast<unsigned char>(c) < 0x20) c = ' ';
    // Enhanced text gives ^ _ @ & ~ { } a meaning; two backslashes take it away.
    if (std::strchr("^_@&~{}", c) != nullptr) out += "\\\\";
    if (c == '"' || c == '\\' || c == '`') out += '\\';
    out += c;
  }
  return out + '"';
}

/// A file without a name; pipes could fill up while we wait for the other side.
File scratch_file() {
  File file(std::tmpfile());
  if (!file) fail("cannot make a temporary file: {}", std::strerror(errno));
  return file;
}

std::string read_all(std::FILE* file) {
  std::string out;
  std::rewind(file);
  std::array<char, 1 << 14> buffer;
  while (std::size_t n = std::fread(buffer.data(), 1, buffer.size(), file)) {
    out.append(buffer.data(), n);
  }
  return out;
}

/// gnuplot's standard output for a script.
std::string run_gnuplot(const std::string& script) {
  File in = scratch_file(), out = scratch_file(), errors = scratch_file();
  if (std::fwrite(script.data(), 1, script.size(), in.get()) != script.size() ||
      std::fflush(in.get()) != 0) {
    fail("cannot write to a temporary file: {}", std::strerror(errno));
  }
  std::rewind(in.get());

  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_adddup2(&actions, ::fileno(in.get()), STDIN_FILENO);
  ::posix_spawn_file_actions_adddup2(&actions, ::fileno(out.get()), STDOUT_FILENO);
  ::posix_spawn_file_actions_adddup2(&actions, ::fileno(errors.get()), STDERR_FILENO);
  std::array<char*, 2> arguments = {const_cast<char*>("gnuplot"), nullptr};
  pid_t child = 0;
  const int error = ::posix_spawnp(&child, "gnuplot", &actions, nullptr, arguments.data(), environ);
  ::posix_spawn_file_actions_destroy(&actions);
  if (error != 0) fail("cannot start gnuplot: {}", std::strerror(error));

  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  std::string drawn = read_all(out.get());
  if (status != 0 || drawn.empty()) {
    std::string why = read_all(errors.get());
    for (char& c : why) c = c == '\n' ? ' ' : c;
    fail("gnuplot could not draw the plot: {}", why.empty() ? "it says nothing" : why);
  }
  return drawn;
}

bool in_path(const char* program) {
  const char* path = std::getenv("PATH");
  std::string_view rest = path == nullptr ? "/usr/bin:/bin" : path;
  while (true) {
    const std::string_view folder = rest.substr(0, rest.find(':'));
    if (::access((fs::path(folder.empty() ? "." : folder) / program).c_str(), X_OK) == 0) {
      return true;
    }
    if (folder.size() == rest.size()) return false;
    rest.remove_prefix(folder.size() + 1);
  }
}

bool is_shown(const Plot& plot, const Plot::Point& p) {
  return std::isfinite(p.x) && std::isfinite(p.y) && (!plot.log_x || p.x > 0) &&
         (!plot.log_y || p.y > 0);
}

/// A range that fits the points; gnuplot would go to the next power of ten.
void append_log_y(std::string& out, const Plot& plot) {
  double low = HUGE_VAL, high = 0;
  for (const Plot::Line& line : plot.lines) {
    for (const Plot::Point& p : line.points) {
      if (!is_shown(plot, p)) continue;
      low = std::min(low, p.y);
      high = std::max(high, p.y);
    }
  }
  if (high == 0) return;  // no points: no logarithms either
  out += fmt::format("set logscale y {}\n", high / low < 100 ? 2 : 10);
  out += fmt::format("set yrange [{:.6g}:{:.6g}]\n", low / 1.3, high * 1.3);
}

/// False, and nothing written, when no point of the line is shown.
bool append_data(std::string& out, const Plot& plot, std::size_t i) {
  std::string rows;
  for (const Plot::Point& p : plot.lines[i].points) {
    if (!is_shown(plot, p)) continue;
    // A bar down to zero has no end on a logarithmic axis.
    const double low = plot.log_y ? std::max(p.y - p.deviation, p.y * 1e-3) : p.y - p.deviation;
    rows += fmt::format("{:.9g} {:.9g} {:.9g} {:.9g}\n", p.x, p.y, low, p.y + p.deviation);
  }
  if (!rows.empty()) out += fmt::format("$line{} << EOD\n{}EOD\n", i, rows);
  return !rows.empty();
}

}  // namespace

std::string plot_script(const Plot& plot, std::string_view terminal) {
  std::string out = fmt::format("set terminal {}\nset encoding utf8\n", terminal);
  out += fmt::format("set title {}\n", literal(plot.title));
  out +=
      fmt::format("set xlabel {}\nset ylabel {}\n", literal(plot.x_title), literal(plot.y_title));
  out +=
      "set grid\nset key outside right top\nset bars small\nset offsets graph 0.05, graph 0.05\n";
  if (plot.log_x) out += "set logscale x 2\n";
  if (plot.log_y) append_log_y(out, plot);
  std::string commands;
  for (std::size_t i = 0; i < plot.lines.size(); ++i) {
    if (!append_data(out, plot, i)) continue;
    commands += fmt::format(
        "{}$line{} using 1:2:3:4 with yerrorbars lt {} lw 1 pt 0 notitle, $line{} using 1:2 with "
        "linespoints lt {} lw 2 pt {} ps 0.8 title {}",
        commands.empty() ? "plot " : ", \\\n     ", i, i + 1, i, i + 1, 5 + 2 * (i % 5),
        literal(plot.lines[i].name));
  }
  require(!commands.empty(), "there is nothing to draw: no line has a point on these axes");
  out += commands;
  return out + '\n';
}

void check_plot(const fs::path& path) {
  terminal_of(path);
  require(in_path("gnuplot"),
          "{}: plots are drawn by gnuplot, which is not installed (Debian's package: gnuplot-nox)",
          path.string());
}

void write_plot(const Plot& plot, const fs::path& path) {
  check_plot(path);
  write_file(path, run_gnuplot(plot_script(plot, terminal_of(path))));
}

}  // namespace ballast
