#include "ballast/row_mean.h"

#include <algorithm>
#include <utility>

#include "base/checks.h"
#include "base/fail.h"
#include "storage/turns.h"

namespace ballast {

RowMean::RowMean(std::vector<float> mean, const Rotary& rotary)
    : mean_(std::move(mean)), turns_(Turns::of(rotary)) {
  require(first_not_finite(mean_) == mean_.size(), "the mean of rows is not finite");
  require(
      turns_ == nullptr || (2 * turns_->count() <= mean_.size() && turns_->count() <= Turns::kMost),
      "{} rotations of two elements in rows of {}", rotary.frequencies.size(), mean_.size());
}

RowMean RowMean::of_keys(const RowsView& rows, const Rotary& rotary) {
  const std::shared_ptr<const Turns> turns = Turns::of(rotary);
  const double square = double{rotary.magnitude} * double{rotary.magnitude};
  std::vector<double> sums(rows.dim, 0.0);
  std::vector<float> row(rows.dim), cosines(rows.dim), sines(rows.dim);
  for (std::size_t i = 0; i < rows.rows; ++i) {
    rows.decode(i, row);
    if (turns != nullptr) turns->at(rows.position(i), cosines.data(), sines.data());
    std::size_t rest = 0;
    for (std::size_t f = 0; turns != nullptr && f < turns->count(); ++f) {
      const double cosine = cosines[f], sine = sines[f];
      const std::size_t a = turns->first(f), b = turns->second(f);
      sums[a] += (double{row[a]} * cosine + double{row[b]} * sine) / square;
      sums[b] += (double{row[b]} * cosine - double{row[a]} * sine) / square;
      rest += 2;
    }
    for (std::size_t c = rest; c < row.size(); ++c) sums[c] += double{row[c]};
  }
  const auto count = static_cast<double>(std::max<std::size_t>(rows.rows, 1));
  std::ranges::transform(sums, row.begin(),
                         [count](double sum) { return static_cast<float>(sum / count); });
  return RowMean(std::move(row), rotary);
}

RowMean RowMean::of_values(const RowsView& values) {
  RowMean out = of_keys(values, {});
  out.averaged_ = true;
  return out;
}

RowMean RowMean::for_values(std::vector<float> mean) {
  RowMean out(std::move(mean));
  out.averaged_ = true;
  return out;
}

void RowMean::at(Position n, float* out) const {
  std::copy(mean_.begin(), mean_.end(), out);
  if (turns_ == nullptr) return;
  require(n >= 0, "a row relative to a turned mean has no position");
  float cosines[Turns::kMost], sines[Turns::kMost];
  turns_->at(n, cosines, sines);
  for (std::size_t f = 0; f < turns_->count(); ++f) {
    const std::size_t a = turns_->first(f), b = turns_->second(f);
    out[a] = mean_[a] * cosines[f] - mean_[b] * sines[f];
    out[b] = mean_[b] * cosines[f] + mean_[a] * sines[f];
  }
}

bool RowMean::operator==(const RowMean& other) const {
  return turns_ == other.turns_ && averaged_ == other.averaged_ && mean_ == other.mean_;
}

}  // namespace ballast
