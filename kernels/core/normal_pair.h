// Two standard normal numbers from two random words, with the same bits on every CPU and GPU: a
// fixed sequence of IEEE operations in double precision (Box-Muller; logarithm, sine and cosine
// after fdlibm's kernels), of which the compiler may contract none. A host file that calls it is
// compiled with -ffp-contract=off.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#include "common/formats/hd.h"

namespace hearth::kernels {

// The four operations, each rounded to nearest.
struct Ieee {
#ifdef __CUDA_ARCH__
  static __device__ double Mul(double a, double b) {
    return __dmul_rn(a, b);
  }
  static __device__ double Add(double a, double b) {
    return __dadd_rn(a, b);
  }
  static __device__ double Sub(double a, double b) {
    return __dsub_rn(a, b);
  }
  static __device__ double Div(double a, double b) {
    return __ddiv_rn(a, b);
  }
  static __device__ double Sqrt(double a) {
    return __dsqrt_rn(a);
  }
#else
  static HEARTH_HD double Mul(double a, double b) {
    return a * b;
  }
  static HEARTH_HD double Add(double a, double b) {
    return a + b;
  }
  static HEARTH_HD double Sub(double a, double b) {
    return a - b;
  }
  static HEARTH_HD double Div(double a, double b) {
    return a / b;
  }
  static HEARTH_HD double Sqrt(double a) {
    return std::sqrt(a);
  }
#endif

  static HEARTH_HD double FromBits(uint64_t bits) {
    double value;
    std::memcpy(&value, &bits, sizeof(value));
    return value;
  }
  static HEARTH_HD uint64_t Bits(double value) {
    uint64_t bits;
    std::memcpy(&bits, &value, sizeof(bits));
    return bits;
  }
  // Exact. n < 2^52.
  static HEARTH_HD double FromInteger(uint64_t n) {
    return Sub(FromBits(n | 0x4330000000000000), 0x1p52);
  }
};

// Natural logarithm of a normal number > 0; error below 1 unit in the last place.
HEARTH_HD inline double NormalLog(double x) {
  // x = 2^k * m, sqrt(1/2) <= m < sqrt(2)
  constexpr uint64_t kSqrtHalf = 0x3FE6A09E00000000;
  const uint64_t shifted = Ieee::Bits(x) + (0x3FF0000000000000 - kSqrtHalf);
  const double k = Ieee::Sub(Ieee::FromInteger(shifted >> 52), 1023.0);
  const double m = Ieee::FromBits((shifted & 0x000FFFFFFFFFFFFF) + kSqrtHalf);
  // fdlibm's e_log.c: log(1 + f) = f - f^2 / 2 + s (f^2 / 2 + r), s = f / (2 + f), r a polynomial
  // in s^2.
  const double f = Ieee::Sub(m, 1.0);
  const double half_square = Ieee::Mul(Ieee::Mul(0.5, f), f);
  const double s = Ieee::Div(f, Ieee::Add(2.0, f));
  const double z = Ieee::Mul(s, s);
  const double w = Ieee::Mul(z, z);
  double odd = Ieee::Add(2.222219843214978396e-01, Ieee::Mul(w, 1.531383769920937332e-01));
  odd = Ieee::Add(3.999999999940941908e-01, Ieee::Mul(w, odd));
  double even = Ieee::Add(1.818357216161805012e-01, Ieee::Mul(w, 1.479819860511658591e-01));
  even = Ieee::Add(2.857142874366239149e-01, Ieee::Mul(w, even));
  even = Ieee::Add(6.666666666666735130e-01, Ieee::Mul(w, even));
  const double r = Ieee::Add(Ieee::Mul(w, odd), Ieee::Mul(z, even));
  constexpr double kLn2High = 6.93147180369123816490e-01;
  constexpr double kLn2Low = 1.90821492927058770002e-10;
  // k times the high part of ln 2 is exact; the low part goes to the small terms.
  double log = Ieee::Add(Ieee::Mul(s, Ieee::Add(half_square, r)), Ieee::Mul(k, kLn2Low));
  log = Ieee::Add(Ieee::Sub(log, half_square), f);
  return Ieee::Add(log, Ieee::Mul(k, kLn2High));
}

struct SineCosine {
  double sine;
  double cosine;
};

// Sine and cosine of x + tail, |x| <= pi / 4, tail below half a unit in x's last place.
HEARTH_HD inline SineCosine SineCosineOfQuarter(double x, double tail) {
  const double z = Ieee::Mul(x, x);
  const double v = Ieee::Mul(z, x);
  double r = Ieee::Add(-2.50507602534068634195e-08, Ieee::Mul(z, 1.58969099521155010221e-10));
  r = Ieee::Add(2.75573137070700676789e-06, Ieee::Mul(z, r));
  r = Ieee::Add(-1.98412698298579493134e-04, Ieee::Mul(z, r));
  r = Ieee::Add(8.33333333332248946124e-03, Ieee::Mul(z, r));
  double sine = Ieee::Sub(Ieee::Mul(0.5, tail), Ieee::Mul(v, r));
  sine = Ieee::Sub(Ieee::Mul(z, sine), tail);
  sine = Ieee::Sub(sine, Ieee::Mul(v, -1.66666666666666324348e-01));
  sine = Ieee::Sub(x, sine);

  double low = Ieee::Add(-1.38888888888741095749e-03, Ieee::Mul(z, 2.48015872894767294178e-05));
  low = Ieee::Mul(z, Ieee::Add(4.16666666666666019037e-02, Ieee::Mul(z, low)));
  double high = Ieee::Add(2.08757232129817482790e-09, Ieee::Mul(z, -1.13596475577881948265e-11));
  high = Ieee::Add(-2.75573143513906633035e-07, Ieee::Mul(z, high));
  const double square = Ieee::Mul(z, z);
  const double q = Ieee::Add(low, Ieee::Mul(Ieee::Mul(square, square), high));
  const double half = Ieee::Mul(0.5, z);
  const double w = Ieee::Sub(1.0, half);
  const double correction = Ieee::Sub(Ieee::Mul(z, q), Ieee::Mul(x, tail));
  const double cosine = Ieee::Add(w, Ieee::Add(Ieee::Sub(Ieee::Sub(1.0, w), half), correction));
  return {sine, cosine};
}

struct NormalPair {
  double first;
  double second;
};

// Box-Muller with the radius from `a` and the angle from `b`.
HEARTH_HD inline NormalPair MakeNormalPair(uint32_t a, uint32_t b) {
  // Moved off zero so that the logarithm is finite.
  const double u = Ieee::Mul(Ieee::Add(Ieee::FromInteger(a), 0.5), 0x1p-32);
  const double radius = Ieee::Sqrt(Ieee::Mul(-2.0, NormalLog(u)));

  constexpr double kTwoPi = 6.28318530717958647692;
  const double angle = Ieee::Mul(kTwoPi, Ieee::Mul(Ieee::FromInteger(b), 0x1p-32));
  // The nearest quarter turn away; pi / 2 is kHigh, of 33 bits, and kLow.
  constexpr double kHigh = 1.57079632673412561417e+00;
  constexpr double kLow = 6.07710050650619224932e-11;
  const uint64_t quarter = (uint64_t{b} + (uint64_t{1} << 29)) >> 30;
  const double turns = Ieee::FromInteger(quarter);
  const double rest = Ieee::Sub(angle, Ieee::Mul(turns, kHigh));
  const double low = Ieee::Mul(turns, kLow);
  const double x = Ieee::Sub(rest, low);
  const SineCosine at = SineCosineOfQuarter(x, Ieee::Sub(Ieee::Sub(rest, x), low));

  // An odd number of quarter turns exchanges sine and cosine; the signs follow from the quadrant.
  const bool swapped = (quarter & 1) != 0;
  const uint64_t cosine = Ieee::Bits(swapped ? at.sine : at.cosine) ^ (((quarter + 1) & 2) << 62);
  const uint64_t sine = Ieee::Bits(swapped ? at.cosine : at.sine) ^ ((quarter & 2) << 62);
  return {Ieee::Mul(radius, Ieee::FromBits(cosine)), Ieee::Mul(radius, Ieee::FromBits(sine))};
}

}  // namespace hearth::kernels
