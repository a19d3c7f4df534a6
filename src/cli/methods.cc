// ballast methods: lists the methods and their parameters.
#include <fmt/format.h>

#include <algorithm>

#include "ballast/method.h"
#include "base/fail.h"
#include "cli/command.h"
#include "report/table.h"
#include "report/terminal.h"
#include "report/units.h"

namespace ballast::cli {
namespace {

std::string watch_text(const MethodInfo& info) {
  if (info.needs.reads_again()) return "a replay pass of the text";
  std::string text;
  if (info.needs.attention_sums) {
    text = "attention from every query";
  } else if (info.needs.recent_queries) {
    text = "attention from the latest queries";
  } else if (info.needs.query_moments) {
    return "mean and covariance of all queries";
  } else {
    return info.needs_of == nullptr ? "nothing" : "depends on its parameters";
  }
  return info.needs.whole_layer ? text + ", all heads together" : text;
}

std::string window_text(const MethodInfo& info) {
  switch (info.window_policy) {
    case WindowPolicy::fixed:
      return fmt::format("{} tokens", info.window);
    case WindowPolicy::half:
      return "half of what the sink leaves";
    case WindowPolicy::rest:
      return "all that the sink leaves";
    default:
      return "everything";
  }
}

std::string range_text(const Parameter& p) {
  if (p.kind == Parameter::Kind::choice) {
    std::string text(p.choices);
    for (std::size_t at = 0; (at = text.find('|', at)) != std::string::npos; at += 3) {
      text.replace(at, 1, " | ");
    }
    return text;
  }
  if (p.kind == Parameter::Kind::memory) return "SIZE";
  if (p.kind == Parameter::Kind::text) return "text";
  return fmt::format("{:g} to {}", p.low,
                     p.high >= 2147483647 && p.kind == Parameter::Kind::integer
                         ? "2^31 - 1"
                         : fmt::format("{:g}", p.high));
}

/// The method's own parameters, then the common ones that it does not redefine.
std::vector<const Parameter*> parameters_of(const MethodInfo& info) {
  std::vector<const Parameter*> out;
  for (const Parameter& p : info.parameters) out.push_back(&p);
  for (const Parameter& p : common_parameters()) {
    // The other common ones say which entries of a head are kept.
    const bool counts = !info.global_budget && info.window_policy != WindowPolicy::all;
    if (!counts && p.name != "type") continue;
    auto same = [&](const Parameter* own) { return own->name == p.name; };
    if (std::ranges::none_of(out, same)) out.push_back(&p);
  }
  return out;
}

/// The default of a key.
std::string default_text(const MethodInfo& info, const Parameter& p) {
  if (!p.standard.empty()) return std::string(p.standard);
  if (p.name == "sink") return std::to_string(info.sink);
  if (p.name == "window") return window_text(info);
  if (p.name == "step") return std::to_string(info.step);
  if (p.name == "generated") return info.keeps_generated ? "keep" : "evict";
  if (p.name == "layers") return info.pyramid ? "pyramid" : "uniform";
  return "-";
}

std::string_view kind_text(Parameter::Kind kind) {
  switch (kind) {
    case Parameter::Kind::integer:
      return "integer";
    case Parameter::Kind::real:
      return "real";
    case Parameter::Kind::memory:
      return "memory";
    case Parameter::Kind::text:
      return "text";
    default:
      return "choice";
  }
}

Json to_json(const MethodInfo& info) {
  Json parameters = Json::array();
  for (const Parameter* p : parameters_of(info)) {
    Json one = {
        {"name", p->name}, {"kind", kind_text(p->kind)}, {"default", default_text(info, *p)}};
    if (p->kind == Parameter::Kind::choice) {
      one["choices"] = p->choices;
    } else if (p->kind == Parameter::Kind::integer || p->kind == Parameter::Kind::real) {
      one["low"] = p->low;
      one["high"] = p->high;
    }
    one["help"] = p->help;
    parameters.push_back(std::move(one));
  }
  return {{"name", info.name},
          {"title", info.title},
          {"paper", info.paper},
          {"watches", watch_text(info)},
          {"merges", info.merges},
          {"protocols", Json{"prefill", "stream"}},
          {"parameters", std::move(parameters)}};
}

void list_methods(TableOutput& out) {
  Table table({{"method"}, {"keeps"}, {"paper"}});
  Json all = Json::array();
  for (const MethodInfo* info : methods()) {
    table.add({std::string(info->name), std::string(info->title), std::string(info->paper)});
    all.push_back(to_json(*info));
  }
  out.show(table);
  out.say(
      wrap("\nA method string is name:key=value,key=value, such as "
           "balancekv:rate=0.25,block=256.\n"
           "Keys, defaults and ranges of one method: ballast methods NAME\n",
           terminal_width()));
  out.finish({{"methods", std::move(all)}});
}

void show_method(const MethodInfo& info, TableOutput& out) {
  out.say(fmt::format("{}: {}\n\n", info.name, info.title));
  out.say(fmt::format("paper      {}\n", info.paper));
  out.say(fmt::format("watches    {}\n", watch_text(info)));
  out.say(fmt::format("unites     {}\n",
                      info.merges ? "yes: summaries of two texts become one" : "no"));
  out.say("protocols  prefill, stream\n\n");
  Table table({{"key"}, {"default", Align::right}, {"values"}, {"meaning"}});
  for (const Parameter* p : parameters_of(info)) {
    table.add({std::string(p->name), default_text(info, *p), range_text(*p), std::string(p->help)});
  }
  out.show(table);
  out.finish(to_json(info));
}

/// What to use when. docs/methods.md has the same with figures.
struct Choice {
  const char* when;
  const char* options;
  const char* reads;
};

constexpr Choice kChoices[] = {
    {"questions come after the text, answers must stay right", "--cache 1/8",
     "once; holds the exact cache while it reads"},
    {"the same, and the exact cache has no room", "--cache 1/8 --protocol stream",
     "once; holds the budget and a chunk"},
    {"a sixteenth or less must do", "--method replay:bytes=1/16",
     "twice; finds what calibration cannot foresee"},
    {"the questions are known beforehand", "--method replay:question=known,bytes=1/16",
     "twice; what the questions look at counts, too"},
    {"a conversation, or a text of unknown length", "--cache 256M",
     "exact until that is full, then as in stream"},
    {"a text longer than the model's positions",
     "--method streaming-llm:budget=2048 --protocol stream --positions rolling",
     "once; only the last tokens are known"},
    {"attention must stay close in every head", "--method replay:score=rms,bytes=1/8",
     "twice; a lower error of attention"},
    {"attention is spread over the whole text", "--method balancekv --cache 1/4",
     "once; an unbiased sample of what is dropped"},
};

void choose(TableOutput& out) {
  Table table({{"when"}, {"give"}, {"reads the text"}});
  Json all = Json::array();
  for (const Choice& choice : kChoices) {
    table.add({choice.when, choice.options, choice.reads});
    all.push_back({{"when", choice.when}, {"options", choice.options}, {"reads", choice.reads}});
  }
  out.show(table);
  out.finish({{"choices", std::move(all)}});
}

}  // namespace

void add_methods(CLI::App& parent, std::function<void()>& task) {
  struct Options {
    std::string name;
    bool choose = false;
    TableOutput output;
  };
  auto options = std::make_shared<Options>();
  CLI::App* app = parent.add_subcommand("methods", "List the cache methods, or describe one");
  app->add_option("NAME", options->name, "The method to describe")->type_name("");
  app->add_flag("--choose", options->choose, "Say which method is for which use");
  options->output.add_to(*app);
  app->footer("Example:\n  ballast methods balancekv\n  ballast methods --choose");
  app->callback([options, &task] {
    task = [options] {
      options->output.open();
      if (options->choose) {
        require(options->name.empty(), "methods: give a name or --choose, not both");
        return choose(options->output);
      }
      if (options->name.empty()) return list_methods(options->output);
      show_method(find_method(options->name), options->output);
    };
  });
}

}  // namespace ballast::cli
