#include "experiments/data/benchmark_wording.h"

namespace ballast {
namespace {

// Spelling as in the benchmark ("asconcisely").
constexpr LongBenchTask kLongBench[] = {
    {"narrativeqa", "narrative", "single-document QA", LongBenchScore::qa_f1, 128, true, false,
     false,
     "You are given a story, which can be either a novel or a movie script, and a question. Answer "
     "the question asconcisely as you can, using a single phrase if possible. Do not provide any "
     "explanation.\n\nStory: {context}\n\nNow, answer the question based on the story asconcisely "
     "as you can, using a single phrase if possible. Do not provide any explanation.\n\nQuestion: "
     "{input}\n\nAnswer:"},
    {"qasper", "qasper", "single-document QA", LongBenchScore::qa_f1, 128, true, false, true,
     "You are given a scientific article and a question. Answer the question as concisely as you "
     "can, using a single phrase or sentence if possible. If the question cannot be answered based "
     "on the information in the article, write \"unanswerable\". If the question is a yes/no "
     "question, answer \"yes\", \"no\", or \"unanswerable\". Do not provide any "
     "explanation.\n\nArticle: {context}\n\n Answer the question based on the above article as "
     "concisely as you can, using a single phrase or sentence if possible. If the question cannot "
     "be answered based on the information in the article, write \"unanswerable\". If the question "
     "is a yes/no question, answer \"yes\", \"no\", or \"unanswerable\". Do not provide any "
     "explanation.\n\nQuestion: {input}\n\nAnswer:"},
    {"multifieldqa_en", "multi", "single-document QA", LongBenchScore::qa_f1, 64, true, false, true,
     "Read the following text and answer briefly.\n\n{context}\n\nNow, answer the following "
     "question based on the above text, only give me the answer and do not output any other "
     "words.\n\nQuestion: {input}\nAnswer:"},
    {"hotpotqa", "hotpotqa", "multi-document QA", LongBenchScore::qa_f1, 32, true, false, true,
     "Answer the question based on the given passages. Only give me the answer and do not output "
     "any other words.\n\nThe following are given passages.\n{context}\n\nAnswer the question "
     "based on the given passages. Only give me the answer and do not output any other "
     "words.\n\nQuestion: {input}\nAnswer:"},
    {"2wikimqa", "2wiki", "multi-document QA", LongBenchScore::qa_f1, 32, true, false, true,
     "Answer the question based on the given passages. Only give me the answer and do not output "
     "any other words.\n\nThe following are given passages.\n{context}\n\nAnswer the question "
     "based on the given passages. Only give me the answer and do not output any other "
     "words.\n\nQuestion: {input}\nAnswer:"},
    {"musique", "musique", "multi-document QA", LongBenchScore::qa_f1, 32, true, false, false,
     "Answer the question based on the given passages. Only give me the answer and do not output "
     "any other words.\n\nThe following are given passages.\n{context}\n\nAnswer the question "
     "based on the given passages. Only give me the answer and do not output any other "
     "words.\n\nQuestion: {input}\nAnswer:"},
    {"gov_report", "gov", "summarisation", LongBenchScore::rouge_l, 512, true, false, true,
     "You are given a report by a government agency. Write a one-page summary of the "
     "report.\n\nReport:\n{context}\n\nNow, write a one-page summary of the report.\n\nSummary:"},
    {"qmsum", "qmsum", "summarisation", LongBenchScore::rouge_l, 512, true, false, false,
     "You are given a meeting transcript and a query containing a question or instruction. Answer "
     "the query in one or more sentences.\n\nTranscript:\n{context}\n\nNow, answer the query based "
     "on the above meeting transcript in one or more sentences.\n\nQuery: {input}\nAnswer:"},
    {"multi_news", "multinews", "summarisation", LongBenchScore::rouge_l, 512, true, false, true,
     "You are given several news passages. Write a one-page summary of all news. "
     "\n\nNews:\n{context}\n\nNow, write a one-page summary of all the news.\n\nSummary:"},
    {"trec", "trec", "few-shot", LongBenchScore::classification, 64, false, true, true,
     "Please determine the type of the question below. Here are some examples of "
     "questions.\n\n{context}\n{input}"},
    {"triviaqa", "triviaqa", "few-shot", LongBenchScore::qa_f1, 32, false, true, true,
     "Answer the question based on the given passage. Only give me the answer and do not output "
     "any other words. The following are some examples.\n\n{context}\n\n{input}"},
    {"samsum", "samsum", "few-shot", LongBenchScore::rouge_l, 128, false, true, true,
     "Summarize the dialogue into a few short sentences. The following are some "
     "examples.\n\n{context}\n\n{input}"},
    {"passage_count", "p.count", "synthetic", LongBenchScore::count, 32, true, false, true,
     "There are some paragraphs below sourced from Wikipedia. Some of them may be duplicates. "
     "Please carefully read these paragraphs and determine how many unique paragraphs there are "
     "after removing duplicates. In other words, how many non-repeating paragraphs are there in "
     "total?\n\n{context}\n\nPlease enter the final count of unique paragraphs after removing "
     "duplicates. The output format should only contain the number, such as 1, 2, 3, and so "
     "on.\n\nThe final answer is: "},
    {"passage_retrieval_en", "p.ret", "synthetic", LongBenchScore::retrieval, 32, true, false, true,
     "Here are 30 paragraphs from Wikipedia, along with an abstract. Please determine which "
     "paragraph the abstract is from.\n\n{context}\n\nThe following is an "
     "abstract.\n\n{input}\n\nPlease enter the number of the paragraph that the abstract is from. "
     "The answer format must be like \"Paragraph 1\", \"Paragraph 2\", etc.\n\nThe answer is: "},
    {"lcc", "lcc", "code", LongBenchScore::code, 64, false, false, true,
     "Please complete the code given below. \n{context}Next line of code:\n"},
    {"repobench-p", "repo-p", "code", LongBenchScore::code, 64, false, false, true,
     "Please complete the code given below. \n{context}{input}Next line of code:\n"},
};

// The first name that a task begins with counts.
constexpr RulerTask kRuler[] = {
    {"niah", 128, RulerScore::all},        {"vt", 30, RulerScore::all},
    {"cwe", 120, RulerScore::all},         {"fwe", 50, RulerScore::all},
    {"qa", 32, RulerScore::any},           {"arithmetic", 256, RulerScore::number},
    {"problems", 256, RulerScore::number}, {"code", 64, RulerScore::number},
    {"tools", 96, RulerScore::call},       {"functions", 128, RulerScore::all}};

}  // namespace

std::span<const LongBenchTask> longbench_tasks() { return kLongBench; }

std::span<const RulerTask> ruler_tasks() { return kRuler; }

}  // namespace ballast
