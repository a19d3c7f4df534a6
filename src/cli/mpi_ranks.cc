#include "cli/mpi_ranks.h"

#include <algorithm>
#include <cstdlib>
#include <deque>
#include <exception>
#include <string>

#include "base/fail.h"

#ifdef BALLAST_MPI
#include <mpi.h>
#endif

namespace ballast::cli {
namespace {

/// Processes that Open MPI's or MPICH's mpirun has started with this one.
int started() {
  for (const char* name : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE"}) {
    if (const char* text = std::getenv(name)) return std::atoi(text);
  }
  return 1;
}

#ifdef BALLAST_MPI
/// MPI's default is that an error ends all processes, with its own words.
class MpiRanks : public Ranks {
 public:
  MpiRanks() {
    MPI_Init(nullptr, nullptr);
    int n = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &n);
    rank_ = static_cast<std::size_t>(n);
    MPI_Comm_size(MPI_COMM_WORLD, &n);
    size_ = static_cast<std::size_t>(n);
  }
  ~MpiRanks() override {
    // A process that ends without MPI_Finalize() ends the others; with it, it would wait for them.
    if (std::uncaught_exceptions() > 0) return;
    while (!pending_.empty()) complete_oldest();
    MPI_Finalize();
  }
  MpiRanks(const MpiRanks&) = delete;
  MpiRanks& operator=(const MpiRanks&) = delete;

  std::size_t rank() const override { return rank_; }
  std::size_t size() const override { return size_; }

  void send(std::size_t to, std::vector<std::byte> bytes) override {
    while (pending_.size() >= kPending) complete_oldest();
    Message& message = pending_.emplace_back();
    message.bytes = std::move(bytes);
    for (std::size_t at = 0; at < message.bytes.size(); at += kMost) {
      MPI_Isend(message.bytes.data() + at, count(message.bytes.size() - at), MPI_BYTE,
                static_cast<int>(to), 0, MPI_COMM_WORLD, &message.requests.emplace_back());
    }
  }
  void receive(std::size_t from, std::span<std::byte> bytes) override {
    for (std::size_t at = 0; at < bytes.size(); at += kMost) {
      MPI_Recv(bytes.data() + at, count(bytes.size() - at), MPI_BYTE, static_cast<int>(from), 0,
               MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
  }
  void gather(std::span<const std::byte> mine, std::span<std::byte> all) override {
    require(mine.size() <= kMost, "{} bytes to gather at once", mine.size());
    MPI_Allgather(mine.data(), count(mine.size()), MPI_BYTE, all.data(), count(mine.size()),
                  MPI_BYTE, MPI_COMM_WORLD);
  }

 private:
  static constexpr std::size_t kMost = std::size_t{1} << 30;  // MPI counts in int
  static constexpr std::size_t kPending = 8;
  struct Message {
    std::vector<std::byte> bytes;
    std::deque<MPI_Request> requests;
  };

  static int count(std::size_t bytes) { return static_cast<int>(std::min(bytes, kMost)); }
  void complete_oldest() {
    for (MPI_Request& request : pending_.front().requests) MPI_Wait(&request, MPI_STATUS_IGNORE);
    pending_.pop_front();
  }

  std::size_t rank_ = 0, size_ = 1;
  std::deque<Message> pending_;  ///< sent, perhaps not received
};
#endif

}  // namespace

std::shared_ptr<Ranks> mpi_ranks() {
  if (started() < 2) return nullptr;
#ifdef BALLAST_MPI
  return std::make_shared<MpiRanks>();
#else
  fail(ErrorCode::unsupported,
       "this program was built without MPI, so that mpirun would run it {} times for nothing: "
       "configure with -DBALLAST_MPI=ON",
       started());
#endif
}

}  // namespace ballast::cli
