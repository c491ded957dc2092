"""The C helpers that a step may call, each written only where it is used; `@` stands for the prefix of all names."""

HELPERS: dict[str, str] = {
    "max": """
static inline double @max(double a, double b) { return a != a || a > b ? a : b; }
""",
    "min": """
static inline double @min(double a, double b) { return a != a || a < b ? a : b; }
""",
    "imax": """
static inline int64_t @imax(int64_t a, int64_t b) { return a > b ? a : b; }
""",
    "imin": """
static inline int64_t @imin(int64_t a, int64_t b) { return a < b ? a : b; }
""",
    "sign": """
static inline double @sign(double a) { return a > 0 ? 1 : a < 0 ? -1 : a; }
""",
    "logistic": """
static inline double @logistic(double a) { return 1 / (1 + exp(-a)); }
""",
    # tanh |a| = (e - 1) / (e + 1) with e = exp(2 |a|) = 2^k (1 + q), |q| small: no cancellation at 0, and no branch, so
    # that a compiler can compute several at once. It is within 2 units of the last place.
    "tanh": """
static inline double @tanh(double a)
{
    double z = fabs(a), k, r, q, e, scale;
    uint64_t bits;
    z = z > 20.0 ? 40.0 : z + z;
    k = z * 1.4426950408889634 + 6755399441055744.0; /* rounds to the nearest integer, in the lowest bits */
    memcpy(&bits, &k, sizeof bits);
    bits = (bits + 1023) << 52;
    memcpy(&scale, &bits, sizeof scale);
    k -= 6755399441055744.0;
    r = (z - k * 6.93147180369123816490e-01) - k * 1.90821492927058770002e-10;
    q = 1.0 / 6227020800.0;
    q = q * r + 1.0 / 479001600.0;
    q = q * r + 1.0 / 39916800.0;
    q = q * r + 1.0 / 3628800.0;
    q = q * r + 1.0 / 362880.0;
    q = q * r + 1.0 / 40320.0;
    q = q * r + 1.0 / 5040.0;
    q = q * r + 1.0 / 720.0;
    q = q * r + 1.0 / 120.0;
    q = q * r + 1.0 / 24.0;
    q = q * r + 1.0 / 6.0;
    q = q * r + 0.5;
    q = q * r * r + r;
    e = scale * q + (scale - 1.0);
    return copysign(e / (e + 2.0), a);
}
""",
    "eigh": """
/* Eigenvalues in rising order and eigenvectors (columns) of a symmetric matrix, by Jacobi's rotations. */
static void @eigh(int n, const double *a, double *v, double *w)
{
    double s[n * n];
    int i, j, k, sweep;
    for (i = 0; i < n * n; i++) { s[i] = a[i]; v[i] = i % (n + 1) == 0; }
    for (sweep = 0; sweep < 60; sweep++) {
        double off = 0, on = 0;
        for (i = 0; i < n; i++)
            for (j = 0; j < n; j++) { double q = s[i * n + j] * s[i * n + j]; if (i == j) on += q; else off += q; }
        if (!(off > 1e-34 * on)) break;
        for (i = 0; i < n; i++)
            for (j = i + 1; j < n; j++) {
                double b = s[i * n + j], theta, t, c, d;
                if (b == 0) continue;
                theta = (s[j * n + j] - s[i * n + i]) / (2 * b);
                t = (theta < 0 ? -1 : 1) / (fabs(theta) + sqrt(theta * theta + 1));
                c = 1 / sqrt(t * t + 1);
                d = t * c;
                for (k = 0; k < n; k++) {
                    double p = s[k * n + i], q = s[k * n + j];
                    s[k * n + i] = c * p - d * q;
                    s[k * n + j] = d * p + c * q;
                }
                for (k = 0; k < n; k++) {
                    double p = s[i * n + k], q = s[j * n + k];
                    s[i * n + k] = c * p - d * q;
                    s[j * n + k] = d * p + c * q;
                }
                for (k = 0; k < n; k++) {
                    double p = v[k * n + i], q = v[k * n + j];
                    v[k * n + i] = c * p - d * q;
                    v[k * n + j] = d * p + c * q;
                }
            }
    }
    for (i = 0; i < n; i++) w[i] = s[i * n + i];
    for (i = 0; i < n; i++) {
        int least = i;
        for (j = i + 1; j < n; j++) if (w[j] < w[least]) least = j;
        if (least != i) {
            double q = w[i];
            w[i] = w[least];
            w[least] = q;
            for (k = 0; k < n; k++) { q = v[k * n + i]; v[k * n + i] = v[k * n + least]; v[k * n + least] = q; }
        }
    }
}
""",
    "qr": """
/* a = q r with orthonormal columns in q, by Householder's reflections. */
static void @qr(int rows, int columns, const double *a, double *q, double *r)
{
    double h[rows * columns], v[rows * columns];
    int i, j, k;
    for (i = 0; i < rows * columns; i++) { h[i] = a[i]; v[i] = 0; q[i] = i / columns == i % columns; }
    for (k = 0; k < columns; k++) {
        double size = 0, norm = 0;
        for (i = k; i < rows; i++) size += h[i * columns + k] * h[i * columns + k];
        size = sqrt(size);
        for (i = k; i < rows; i++) v[i * columns + k] = h[i * columns + k];
        v[k * columns + k] += h[k * columns + k] < 0 ? -size : size;
        for (i = k; i < rows; i++) norm += v[i * columns + k] * v[i * columns + k];
        norm = sqrt(norm);
        for (i = k; i < rows; i++) v[i * columns + k] = norm > 0 ? v[i * columns + k] / norm : 0;
        for (j = k; j < columns; j++) {
            double along = 0;
            for (i = k; i < rows; i++) along += v[i * columns + k] * h[i * columns + j];
            for (i = k; i < rows; i++) h[i * columns + j] -= 2 * along * v[i * columns + k];
        }
    }
    for (k = columns - 1; k >= 0; k--)
        for (j = 0; j < columns; j++) {
            double along = 0;
            for (i = k; i < rows; i++) along += v[i * columns + k] * q[i * columns + j];
            for (i = k; i < rows; i++) q[i * columns + j] -= 2 * along * v[i * columns + k];
        }
    for (i = 0; i < columns; i++)
        for (j = 0; j < columns; j++) r[i * columns + j] = i <= j ? h[i * columns + j] : 0;
}
""",
    "cholesky": """
static void @cholesky(int n, const double *a, double *l)
{
    int i, j, k;
    for (i = 0; i < n * n; i++) l[i] = 0;
    for (j = 0; j < n; j++) {
        double s = a[j * n + j];
        for (k = 0; k < j; k++) s -= l[j * n + k] * l[j * n + k];
        l[j * n + j] = s = sqrt(s); /* not a number where the matrix is not positive definite */
        for (i = j + 1; i < n; i++) {
            double r = a[i * n + j];
            for (k = 0; k < j; k++) r -= l[i * n + k] * l[j * n + k];
            l[i * n + j] = r / s;
        }
    }
    if (n && !(l[n * n - 1] == l[n * n - 1]))
        for (i = 0; i < n * n; i++) l[i] = l[n * n - 1];
}
""",
    "lu": """
static void @lu(int n, const double *a, double *f, int32_t *pivots, int32_t *order)
{
    int i, j, k;
    for (i = 0; i < n * n; i++) f[i] = a[i];
    for (i = 0; i < n; i++) order[i] = i;
    for (k = 0; k < n; k++) {
        int best = k;
        for (i = k + 1; i < n; i++) if (fabs(f[i * n + k]) > fabs(f[best * n + k])) best = i;
        pivots[k] = best;
        if (best != k) {
            int32_t o = order[k];
            order[k] = order[best];
            order[best] = o;
            for (j = 0; j < n; j++) { double q = f[k * n + j]; f[k * n + j] = f[best * n + j]; f[best * n + j] = q; }
        }
        if (f[k * n + k] == 0) continue;
        for (i = k + 1; i < n; i++) {
            double r = f[i * n + k] /= f[k * n + k];
            for (j = k + 1; j < n; j++) f[i * n + j] -= r * f[k * n + j];
        }
    }
}
""",
    "permutation": """
static void @permutation(int n, int size, const int32_t *pivots, int32_t *order)
{
    int i;
    for (i = 0; i < size; i++) order[i] = i;
    for (i = 0; i < n; i++) { int32_t o = order[i]; order[i] = order[pivots[i]]; order[pivots[i]] = o; }
}
""",
    "lower_solve": """
static void @lower_solve(int n, int columns, int unit, const double *l, const double *b, double *x)
{
    int i, j, k;
    for (i = 0; i < n; i++)
        for (j = 0; j < columns; j++) {
            double s = b[i * columns + j];
            for (k = 0; k < i; k++) s -= l[i * n + k] * x[k * columns + j];
            x[i * columns + j] = unit ? s : s / l[i * n + i];
        }
}
""",
}
