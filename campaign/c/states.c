/* Calls an exported twin from many states, ordinary and hostile ones.
 *
 *     program SEED COUNT THREADS
 *
 * Each thread has its own state; all share the constants of the twin. The last line of the output counts
 * the calls with and without a status. The exit code is 1 if a promise of the header was broken.
 */
#include "twin.h"

#include <float.h>
#include <math.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SIZE(n) (((n) > 0 ? (n) : 1) * sizeof(double))

static const double SPECIAL[] = {
    NAN, -NAN, INFINITY, -INFINITY, 0.0, -0.0, 5e-324, -5e-324, 1e-310, -2e-308, DBL_MIN, -DBL_MIN, DBL_EPSILON,
    DBL_MAX, -DBL_MAX, 1e300, -1e300, 1e200, 1e155, -1e155, 1e16, 2147483648.0, -2147483649.0, 9.3e18, -9.3e18, 1e-200,
    1e-16, 1.0, -1.0
};
enum { N_SPECIAL = sizeof SPECIAL / sizeof *SPECIAL, KINDS = 5 };

typedef struct {
    uint64_t seed;
    long count, good, bad, broken;
} Work;

static uint64_t bits(uint64_t *seed)
{
    uint64_t z = (*seed += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static double draw(uint64_t *seed, int kind)
{
    double ordinary = (double)(bits(seed) >> 11) * 0x1p-51 - 2, any;
    uint64_t pattern = bits(seed);
    switch (kind) {
    case 0: return ordinary;
    case 1: return pattern % 8 ? ordinary : SPECIAL[(pattern >> 8) % N_SPECIAL];
    case 2: return SPECIAL[pattern % N_SPECIAL];
    case 3: return ordinary * pow(10, (double)(pattern % 620) - 312);
    default: memcpy(&any, &pattern, sizeof any); return any;
    }
}

static double *fill(double *values, int n, uint64_t *seed, int kind)
{
    for (int i = 0; i < n; i++) values[i] = draw(seed, kind);
    return values;
}

static int all_finite(const double *values, int n)
{
    for (int i = 0; i < n; i++) if (!isfinite(values[i])) return 0;
    return 1;
}

static void print(const char *name, const double *values, int n)
{
    printf(" %s =", name);
    for (int i = 0; i < n; i++) printf(" %.17g", values[i]);
}

static void judge(Work *work, const char *call, int status, int was_finite, double t, const double *given,
    const double *w, const double *p, const double *state, const double *y)
{
    const char *broken = 0;
    if (!strcmp(twin_message(status), "unknown status")) broken = "an unknown status";
    else if (!status && !all_finite(y, TWIN_OUTPUTS)) broken = "no status, though an output is not finite";
    else if (!status && !all_finite(state, TWIN_STATES)) broken = "no status, though a state is not finite";
    else if (was_finite && !all_finite(state, TWIN_STATES)) broken = "a state that is not finite, from one that was";
    if (status) work->bad++;
    else work->good++;
    if (!broken) return;
    if (work->broken++ < 3) {
        printf("%s gave %s (status %d): t = %.17g", call, broken, status, t);
        print("given", given, TWIN_STATES);
        print("w", w, TWIN_INPUTS);
        if (p) print("p", p, TWIN_PARAMETERS);
        print("state", state, TWIN_STATE_SIZE);
        print("y", y, TWIN_OUTPUTS);
        puts("");
    }
}

static void *work_on(void *argument)
{
    Work *work = argument;
    uint64_t seed = work->seed;
    /* On the heap and no longer than promised: what goes beyond them is found. */
    double *x0 = malloc(SIZE(TWIN_STATES)), *w0 = malloc(SIZE(TWIN_INPUTS)), *w1 = malloc(SIZE(TWIN_INPUTS));
    double *own = malloc(SIZE(TWIN_PARAMETERS)), *y = malloc(SIZE(TWIN_OUTPUTS));
    double *state = malloc(SIZE(TWIN_STATE_SIZE)), *before = malloc(SIZE(TWIN_STATE_SIZE));
    for (long k = 0; k < work->count; k++) {
        int kind = (int)(bits(&seed) % KINDS), finite;
        int parameters = (int)(bits(&seed) % 8);
        double t = draw(&seed, (int)(bits(&seed) % KINDS));
        const double *p = parameters < 4 ? 0 : fill(own, TWIN_PARAMETERS, &seed, parameters - 4);
        fill(x0, TWIN_STATES, &seed, kind);
        fill(w0, TWIN_INPUTS, &seed, (int)(bits(&seed) % KINDS));
        fill(w1, TWIN_INPUTS, &seed, (int)(bits(&seed) % KINDS));
        int status = twin_init(t, x0, w0, p, state, y);
        judge(work, "init", status, all_finite(x0, TWIN_STATES), t, x0, w0, p, state, y);
        if (k % 2) fill(state, TWIN_STATE_SIZE, &seed, kind); /* any state, also one that no step leads to */
        for (int step = 0; step < 2; step++) {
            memcpy(before, state, TWIN_STATE_SIZE * sizeof(double));
            finite = all_finite(before, TWIN_STATES);
            status = twin_step(t + step * TWIN_DT, w0, w1, p, state, y);
            judge(work, "step", status, finite, t, before, w1, p, state, y);
        }
        twin_output(t, w1, p, state, y);
    }
    free(x0), free(w0), free(w1), free(own), free(state), free(y), free(before);
    return 0;
}

int main(int count, char **arguments)
{
    if (count != 4) return 2;
    int threads = atoi(arguments[3]);
    Work *works = calloc((size_t)threads, sizeof *works), all = {0};
    pthread_t *ids = calloc((size_t)threads, sizeof *ids);
    for (int i = 0; i < threads; i++) {
        works[i].seed = strtoull(arguments[1], 0, 10) * 1000003 + (uint64_t)i;
        works[i].count = atol(arguments[2]) / threads;
        if (pthread_create(&ids[i], 0, work_on, &works[i])) return 3;
    }
    for (int i = 0; i < threads; i++) {
        pthread_join(ids[i], 0);
        all.good += works[i].good, all.bad += works[i].bad, all.broken += works[i].broken;
    }
    free(works), free(ids);
    printf("%ld good, %ld bad, %ld broken\n", all.good, all.bad, all.broken);
    return all.broken > 0;
}
