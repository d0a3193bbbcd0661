#include "tools/splitkv/npy.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>

namespace splitkv::tool {
namespace {

class Npy : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::temp_directory_path() /
              ("splitkv_npy_" + std::to_string(getpid()) + "_" +
               testing::UnitTest::GetInstance()->current_test_info()->name());
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string path(const std::string& name) const { return (folder_ / name).string(); }

  // A file of this version, dictionary and data; the header is not padded.
  std::string file_of(char version, const std::string& dictionary, const std::string& data) {
    std::string bytes = std::string("\x93NUMPY") + version + '\0';
    for (size_t i = 0; i < (version == 1 ? 2 : 4); ++i) {
      bytes += char(dictionary.size() >> (8 * i) & 0xff);
    }
    const std::string name = path("made.npy");
    std::ofstream(name, std::ios::binary) << bytes << dictionary << data;
    return name;
  }

  std::string failure_of(const std::string& name) {
    const auto array = read_npy(name);
    return array.ok() ? "read" : array.error().message;
  }

  std::filesystem::path folder_;
};

const std::string kTwoFloats("\0\0\x80\x3f\0\0\0\xc0", 8);  // 1, -2

TEST_F(Npy, ReadsBackWhatItWrote) {
  const std::vector<float> values = {1.5f,   -0.0f, std::numeric_limits<float>::infinity(),
                                     3e-40f, 7,     8};
  for (const std::vector<int64_t>& shape :
       {std::vector<int64_t>{6}, {2, 3}, {1, 2, 3}, {3, 1, 1, 2}}) {
    ASSERT_TRUE(write_npy(path("a.npy"), shape, values).ok());
    const auto read = read_npy_floats(path("a.npy"));
    ASSERT_TRUE(read.ok()) << read.error().message;
    EXPECT_EQ(read->shape, shape);
    EXPECT_EQ(read->values, values);
    EXPECT_TRUE(std::signbit(read->values[1]));
  }
}

TEST_F(Npy, WritesItsDataAtAMultipleOf64Bytes) {
  for (int rank = 1; rank < 20; ++rank) {
    const std::vector<float> one = {1};
    ASSERT_TRUE(write_npy(path("a.npy"), std::vector<int64_t>(rank, 1), one).ok());
    EXPECT_EQ((std::filesystem::file_size(path("a.npy")) - 4) % 64, 0u) << rank;
    EXPECT_TRUE(read_npy(path("a.npy")).ok());
  }
}

TEST_F(Npy, ReadsVersion2AndHalfPrecisionAndIntegers) {
  const auto two = read_npy_floats(
      file_of(2, "{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }\n", kTwoFloats));
  ASSERT_TRUE(two.ok()) << two.error().message;
  EXPECT_EQ(two->values, (std::vector<float>{1, -2}));

  const auto half =
      read_npy_floats(file_of(1, "{'descr': '<f2', 'fortran_order': False, 'shape': (2, 1), }\n",
                              std::string("\0\x3c\0\xc0", 4)));
  ASSERT_TRUE(half.ok()) << half.error().message;
  EXPECT_EQ(half->values, (std::vector<float>{1, -2}));

  const auto ints =
      read_npy_ints(file_of(1, "{'shape': (1,), 'fortran_order': False, 'descr': '<i8'}\n",
                            std::string("\xfe\xff\xff\xff\xff\xff\xff\xff", 8)));
  ASSERT_TRUE(ints.ok()) << ints.error().message;
  EXPECT_EQ(ints->values, (std::vector<int64_t>{-2}));
}

TEST_F(Npy, RefusesWhatItDoesNotReadAndNamesTheFile) {
  EXPECT_NE(failure_of(path("none.npy")).find("none.npy: cannot be opened"), std::string::npos);
  const std::string shape = "'shape': (2,), }\n";
  const auto fails_with = [&](char version, const std::string& dictionary, const std::string& data,
                              const std::string& reason) {
    const std::string failure = failure_of(file_of(version, dictionary, data));
    EXPECT_NE(failure.find(reason), std::string::npos) << failure;
    EXPECT_NE(failure.find("made.npy"), std::string::npos) << failure;
  };
  fails_with(1, "{'descr': '<f4', 'fortran_order': True, " + shape, kTwoFloats, "Fortran order");
  fails_with(1, "{'descr': '<f8', 'fortran_order': False, " + shape, kTwoFloats, "'<f8'");
  fails_with(1, "{'descr': '>f4', 'fortran_order': False, " + shape, kTwoFloats, "'>f4'");
  fails_with(3, "{'descr': '<f4', 'fortran_order': False, " + shape, kTwoFloats, "version 3");
  fails_with(1, "{'descr': '<f4', 'fortran_order': False, " + shape, "four", "needs 8");
  fails_with(1, "{'descr': '<f4', 'fortran_order': False, " + shape, kTwoFloats + "!", "needs 8");
  fails_with(1, "{'descr': '<f4', 'fortran_order': False, 'shape': (x,), }\n", kTwoFloats,
             "does not parse");
  fails_with(1,
             "{'descr': '<f4', 'fortran_order': False, 'shape': (4294967296, 4294967296, 2), }\n",
             kTwoFloats, "does not parse");
  fails_with(1, "{'descr': '<f4'}", kTwoFloats, "lacks");
  std::ofstream(path("text.npy")) << "this is no array";
  EXPECT_NE(failure_of(path("text.npy")).find("is not a .npy file"), std::string::npos);
  std::ofstream(path("short.npy"), std::ios::binary) << "\x93NUMPY\x01" << '\0' << "\xff\xff{}";
  EXPECT_NE(failure_of(path("short.npy")).find("cut short"), std::string::npos);
}

TEST_F(Npy, RefusesIntegersForATensorAndFloatsForLengths) {
  const std::string ints =
      file_of(1, "{'descr': '<i4', 'fortran_order': False, 'shape': (2,), }\n", kTwoFloats);
  EXPECT_FALSE(read_npy_floats(ints).ok());
  EXPECT_TRUE(read_npy_ints(ints).ok());
  const std::string floats =
      file_of(1, "{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }\n", kTwoFloats);
  EXPECT_FALSE(read_npy_ints(floats).ok());
}

}  // namespace
}  // namespace splitkv::tool
