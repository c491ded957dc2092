/* A host for the FMU of a twin, linked with its source.
 *
 *     program steps COUNT              one long simulation
 *     program instances COUNT          many instances at once
 *     program orders LENGTH            all sequences of calls up to a length, also from each state of the standard
 *     program random SEED COUNT        random sequences of 50 calls
 *     program times                    steps and experiments with hostile times
 *     program arguments                null pointers, unknown value references, hostile values, names and GUIDs
 *     program states SEED COUNT        damaged serialised states
 *
 * Every call has a time limit: a signal ends the program. The exit code is 1 if an answer was wrong or memory is left.
 */
#include "fmi2.h"

#include <unistd.h>

static void many_steps(long count)
{
    Instance it = make("steps");
    double outputs[N_OUTPUTS + 1], inputs[N_INPUTS + 1];
    run(&it, outputs, 0);
    for (long k = 0; k < count && !wrong; k++) {
        alarm(10);
        for (int i = 0; i < N_INPUTS; i++) inputs[i] = 0.1 * sin(0.01 * (double)k + i);
        int status = fmi2SetReal(it.slave, INPUTS, N_INPUTS, inputs) | fmi2DoStep(it.slave, (double)k * STEP, STEP, 1);
        if (status || !read_outputs(&it, outputs)) complain("step %ld returned %d", k, status);
    }
    end(&it);
}

/* An instance with start values that depend on its number. */
static Instance make_started(const char *name, long number)
{
    Instance it = make(name);
    double start[N_FIXED + 1];
    for (int i = 0; i < N_FIXED; i++) start[i] = FIXED_STARTS[i] * (1 + 1e-4 * (double)(number % 97));
    if (fmi2SetupExperiment(it.slave, 0, 0, 0, 0, 0) || fmi2SetReal(it.slave, FIXED, N_FIXED, start)
        || fmi2EnterInitializationMode(it.slave) || fmi2ExitInitializationMode(it.slave))
        complain("instance %ld could not be initialised", number);
    return it;
}

static void many_instances(long count)
{
    Instance *all = calloc((size_t)count, sizeof *all);
    double outputs[N_OUTPUTS + 1], alone[N_OUTPUTS + 1];
    char name[40];
    for (long k = 0; k < count; k++) {
        snprintf(name, sizeof name, "instance %ld", k);
        all[k] = make_started(name, k);
    }
    for (int step = 0; step < 2; step++)
        for (long k = 0; k < count; k++) {
            alarm(10);
            if (fmi2DoStep(all[k].slave, step * STEP, STEP, 1) || call(&all[k], SAVE))
                complain("instance %ld failed among the others", k);
        }
    for (long k = 0; k < count; k++) {
        alarm(10);
        Instance it = make_started("alone", k);
        if (fmi2DoStep(it.slave, 0, STEP, 1) || fmi2DoStep(it.slave, STEP, STEP, 1) || !read_outputs(&it, alone)
            || !read_outputs(&all[k], outputs) || memcmp(outputs, alone, N_OUTPUTS * sizeof(double)))
            complain("instance %ld is not what it is alone", k);
        end(&it);
    }
    for (long k = 0; k < count; k++) end(&all[k]);
    free(all);
}

/* Prefixes that lead to each state of the standard; a negative number is a step that must fail. */
enum { BAD_STEP = -1, NOTHING = -2, N_PREFIXES = 8 };
static const int PREFIXES[N_PREFIXES][8] = {
    {NOTHING}, {SETUP, NOTHING}, {SETUP, ENTER, NOTHING}, {SETUP, ENTER, LEAVE, NOTHING},
    {SETUP, ENTER, LEAVE, STEP_ON, SAVE, SERIALISE, NOTHING}, {SETUP, ENTER, LEAVE, BAD_STEP, NOTHING},
    {SETUP, ENTER, LEAVE, STEP_ON, TERMINATE, NOTHING}, {SETUP, ENTER, LEAVE, SETUP, NOTHING}
};

static void bad_step(Instance *it)
{
    double bad[N_INPUTS + 1];
    for (int i = 0; i < N_INPUTS; i++) bad[i] = NAN;
    int status = fmi2SetReal(it->slave, INPUTS, N_INPUTS, bad);
    if (status == OK) status = fmi2DoStep(it->slave, it->at.t, STEP, 1);
    expect(status == DISCARD || status == ERROR, "a step with inputs that are not numbers was made");
    it->at.state = status == DISCARD ? STEP_FAILED : FAILED;
}

static void one_order(int prefix, long number, int length)
{
    Instance it = make("orders");
    char after[200] = "";
    int right = 1;
    alarm(10);
    for (const int *next = PREFIXES[prefix]; *next != NOTHING; next++) {
        if (*next == BAD_STEP) bad_step(&it);
        else attempt(&it, *next);
    }
    for (int i = 0; i < length && right; i++, number /= FUNCTIONS) {
        right = attempt(&it, (int)(number % FUNCTIONS));
        strncat(after, NAMES[number % FUNCTIONS], 30), strcat(after, " ");
    }
    if (!right) complain("  after the calls %s of prefix %d", after, prefix);
    expect_as_new(&it, after);
    end(&it);
}

static void all_orders(int length)
{
    for (int prefix = 0; prefix < N_PREFIXES; prefix++) {
        long count = 1;
        for (int n = 1; n <= (prefix ? length - 1 : length); n++) {
            count *= FUNCTIONS;
            for (long number = 0; number < count; number++) one_order(prefix, number, n);
        }
    }
}

static void random_orders(uint64_t seed, long count)
{
    for (long k = 0; k < count; k++) {
        Instance it = make("random");
        alarm(10);
        for (int i = 0; i < 50; i++) {
            int function = (int)(bits(&seed) % FUNCTIONS), patience = 100;
            /* Mostly what is allowed; else all but the first few calls would find the slave in an error. */
            while (bits(&seed) % 16 && !may_succeed(&it, function) && patience--)
                function = (int)(bits(&seed) % FUNCTIONS);
            if (!attempt(&it, function)) complain("  random sequence %ld, call %d", k, i);
        }
        expect_as_new(&it, "random calls");
        end(&it);
    }
}

static void hostile_times(void)
{
    static const double points[] = {0, NAN, INFINITY, -INFINITY, 1e300, -1e300, STEP, -STEP, 1e-9 + STEP / 2, 5e-324};
    static const double lengths[] = {
        INFINITY, -INFINITY, 1e300, DBL_MAX, NAN, 0, -0.0, -1, -STEP, 1e-300, 5e-324, STEP / 2, 1.5 * STEP, 1e9 * STEP,
        1e18
    };
    static const double starts[] = {NAN, INFINITY, -INFINITY, 1e300, -1e300, 1e15, -5, 0};
    enum { N_POINTS = sizeof points / sizeof *points, N_LENGTHS = sizeof lengths / sizeof *lengths, N_STARTS = 8 };
    double outputs[N_OUTPUTS + 1];
    for (int i = 0; i < N_POINTS; i++)
        for (int j = -1; j < N_LENGTHS; j++) {
            Instance it = make("times");
            alarm(20);
            run(&it, outputs, 0);
            double h = j < 0 ? STEP : lengths[j];
            int status = fmi2DoStep(it.slave, points[i], h, 1);
            int possible = j < 0 && fabs(points[i]) < 1e-300;
            if (status < OK || status > FATAL || (status == OK) != possible)
                complain("fmi2DoStep(%g, %g) returned %d", points[i], h, status);
            if (status == OK) expect(read_outputs(&it, outputs), "a step was made to outputs that are not finite");
            expect_as_new(&it, "a hostile step");
            /* Going on after an earlier step, back to it, and far from it. */
            run(&it, outputs, 3);
            if (j < 0) expect(fmi2DoStep(it.slave, points[i], STEP, 1) != OK, "a step from another time was made");
            end(&it);
        }
    for (int i = 0; i < N_STARTS; i++)
        for (int j = 0; j < N_STARTS; j++)
            for (int tolerant = 0; tolerant < 2; tolerant++) {
                Instance it = make("experiments");
                alarm(20);
                double start = starts[i], stop = starts[j];
                int status = fmi2SetupExperiment(it.slave, tolerant, NAN, start, 1, stop);
                expect(status != OK || (isfinite(start) && stop >= start), "an impossible experiment was set up");
                if (status == OK && !fmi2EnterInitializationMode(it.slave) && !fmi2ExitInitializationMode(it.slave))
                    for (int k = 0; k < 3; k++) {
                        int made = fmi2DoStep(it.slave, start + k * STEP, STEP, 1);
                        expect(made >= OK && made <= FATAL, "a status that does not exist");
                        double over = start + (k + 1) * STEP - stop;
                        expect(made != OK || over <= STEP / 2 + 1e-9 * fabs(stop), "a step beyond the stop time");
                    }
                expect_as_new(&it, "a hostile experiment");
                end(&it);
            }
}

static void hostile_arguments(void)
{
    enum { N_VARIABLES = N_REALS + N_INTEGERS };
    static const unsigned beyond[] = {N_VARIABLES, N_VARIABLES + 1, 0x7fffffff, 0x80000000, 0xffffffff};
    static const double hostile[] = {NAN, -INFINITY, INFINITY, 1e300, -1e300, DBL_MAX, 5e-324, -0.0};
    double outputs[N_OUTPUTS + 1], one = 0;
    int integer = 0, order = 1;
    const char *text = 0;
    size_t size = 0;
    Instance it = make("arguments");
#define REFUSED(expression) \
    do { \
        alarm(10); \
        run(&it, outputs, 1); \
        void *c = it.slave; \
        (void)c; \
        int status = expression; \
        if (status <= DISCARD || status > FATAL) complain("%s returned %d", #expression, status); \
        expect_as_new(&it, #expression); \
    } while (0)
    for (int many = 1; many <= 2; many++) {
        size_t n = many == 1 ? 1 : SIZE_MAX / 8;
        REFUSED(fmi2GetReal(c, 0, n, &one));
        REFUSED(fmi2GetReal(c, OUTPUTS, n, 0));
        REFUSED(fmi2SetReal(c, 0, n, &one));
        REFUSED(fmi2SetReal(c, INPUTS, n, 0));
        REFUSED(fmi2GetInteger(c, 0, n, &integer));
        REFUSED(fmi2GetInteger(c, INTEGERS, n, 0));
        REFUSED(fmi2SetRealInputDerivatives(c, 0, n, &order, &one));
        REFUSED(fmi2SetRealInputDerivatives(c, INPUTS, n, 0, &one));
        REFUSED(fmi2SetRealInputDerivatives(c, INPUTS, n, &order, 0));
        REFUSED(fmi2GetRealOutputDerivatives(c, 0, n, &order, &one));
        REFUSED(fmi2GetDirectionalDerivative(c, 0, n, 0, n, 0, 0));
        REFUSED(fmi2GetBoolean(c, 0, n, 0));
        REFUSED(fmi2SetBoolean(c, 0, n, 0));
        REFUSED(fmi2GetString(c, 0, n, 0));
        REFUSED(fmi2SetString(c, 0, n, 0));
        REFUSED(fmi2SetInteger(c, 0, n, 0));
    }
    REFUSED(fmi2GetFMUstate(c, 0));
    REFUSED(fmi2SetFMUstate(c, 0));
    REFUSED(fmi2SerializedFMUstateSize(c, 0, &size));
    REFUSED(fmi2SerializeFMUstate(c, 0, 0, 0));
    REFUSED(fmi2DeSerializeFMUstate(c, 0, 0, 0));
    REFUSED(fmi2DeSerializeFMUstate(c, 0, 100, &it.saved));
    REFUSED(fmi2GetRealStatus(c, 2, 0));
    for (int i = 0; i < 5; i++) {
        REFUSED(fmi2GetReal(c, &beyond[i], 1, &one));
        REFUSED(fmi2SetReal(c, &beyond[i], 1, &one));
        REFUSED(fmi2GetInteger(c, &beyond[i], 1, &integer));
        REFUSED(fmi2SetInteger(c, &beyond[i], 1, &integer));
        REFUSED(fmi2GetBoolean(c, &beyond[i], 1, &integer));
        REFUSED(fmi2GetString(c, &beyond[i], 1, &text));
        REFUSED(fmi2SetRealInputDerivatives(c, &beyond[i], 1, &order, &one));
    }
    for (unsigned i = 0; i < N_READABLE; i++) /* outputs and states cannot be set, and nothing real is an integer */
        if (i >= N_READABLE - N_CALCULATED) REFUSED(fmi2SetReal(c, &READABLE[i], 1, &one));
    for (unsigned i = 0; i < N_OUTPUTS; i++) REFUSED(fmi2GetInteger(c, &OUTPUTS[i], 1, &integer));
    for (unsigned i = 0; i < N_FIXED; i++) REFUSED(fmi2SetReal(c, &FIXED[i], 1, &one)); /* after initialisation */
    for (int kind = -3; kind < 9; kind++) { /* kinds of status that do not exist */
        alarm(10);
        run(&it, outputs, 1);
        void *c = it.slave;
        int worst = fmi2GetStatus(c, kind, &integer) | fmi2GetRealStatus(c, kind, &one)
            | fmi2GetIntegerStatus(c, kind, &integer) | fmi2GetBooleanStatus(c, kind, &integer)
            | fmi2GetStringStatus(c, kind, &text);
        expect(worst >= OK && worst <= FATAL, "a status that does not exist");
    }
    /* Hostile values of each variable that can be set: no step succeeds with outputs that are not finite. */
    for (int before = 0; before < 2; before++)
        for (int i = 0; i < N_SETTABLE; i++)
            for (int k = 0; k < 8; k++) {
                alarm(10);
                run(&it, outputs, 1);
                int status = OK;
                if (before) status = fmi2Reset(it.slave) | fmi2SetupExperiment(it.slave, 0, 0, 0, 0, 0);
                status = status ? status : fmi2SetReal(it.slave, &SETTABLE[i], 1, &hostile[k]);
                if (before && !status) status = fmi2EnterInitializationMode(it.slave);
                if (before && !status) status = fmi2ExitInitializationMode(it.slave);
                for (int step = !before; step < 4 && !status; step++) {
                    status = fmi2DoStep(it.slave, step * STEP, STEP, 1);
                    if (!status && !read_outputs(&it, outputs))
                        complain("variable %u at %g: a step to outputs that are not finite", SETTABLE[i], hostile[k]);
                }
                expect(status >= OK && status <= FATAL, "a status that does not exist");
                expect_as_new(&it, "a hostile value");
            }
    /* No instance at all. */
    alarm(10);
    Instance none = {0};
    for (int function = 0; function < FUNCTIONS; function++)
        if (call(&none, function) < ERROR) complain("fmi2%s without an instance", NAMES[function]);
    fmi2FreeInstance(0);
    /* Hostile names, GUIDs, types and callbacks. */
    static char long_name[1 << 20];
    memset(long_name, 'n', sizeof long_name - 1);
    const char *const names[] = {0, "", "%s%n%s%n", "\"</a>\x01\xff", long_name};
    static const Callbacks silent = {0};
    for (int i = 0; i < 5; i++)
        for (int quiet = 0; quiet < 3; quiet++) {
            const Callbacks *callbacks = quiet == 2 ? 0 : quiet ? &silent : &CALLBACKS;
            expect(!fmi2Instantiate(names[i], 0, GUID, 0, callbacks, 0, 1), "an instance for model exchange");
            expect(!fmi2Instantiate(names[i], 7, GUID, 0, callbacks, 0, 1), "an instance of another type");
            expect(!fmi2Instantiate(names[i], 1, 0, 0, callbacks, 0, 1), "an instance without a GUID");
            const char *guid = names[i] ? names[i] : "{}";
            expect(!fmi2Instantiate(names[i], 1, guid, 0, callbacks, 0, 1), "an instance with another GUID");
            void *slave = fmi2Instantiate(names[i], 1, GUID, names[i], callbacks, 1, 1);
            if (slave) expect(fmi2DoStep(slave, 0, STEP, 1) == ERROR, "a step before the initialisation");
            fmi2FreeInstance(slave);
        }
    expect(!strcmp(fmi2GetVersion(), "2.0") && !strcmp(fmi2GetTypesPlatform(), "default"), "version or platform");
    end(&it);
}

static void damaged_states(uint64_t seed, long count)
{
    double outputs[N_OUTPUTS + 1];
    long accepted = 0;
    for (long k = 0; k < count; k++) {
        Instance it = make("states");
        alarm(20);
        run(&it, outputs, (int)(k % 4));
        if (k % 5 == 4) call(&it, TERMINATE);
        expect(!call(&it, SAVE) && !call(&it, SERIALISE), "a state could not be saved");
        size_t size = it.size;
        if (bits(&seed) % 4 == 0) size = bits(&seed) % (2 * size);
        char *bytes = malloc(size ? size : 1); /* exactly: what is read beyond it is found */
        for (size_t i = 0; i < size; i++) bytes[i] = i < it.size ? it.bytes[i] : (char)bits(&seed);
        int changes = (int)(bits(&seed) % 8);
        for (int i = 0; i < changes && size; i++) {
            size_t at = bits(&seed) % size;
            if (bits(&seed) % 3) bytes[at] ^= (char)(1 << bits(&seed) % 8);
            else for (size_t j = at / 8 * 8; j < size && j < at / 8 * 8 + 8; j++) bytes[j] = (char)bits(&seed);
        }
        int status = fmi2DeSerializeFMUstate(it.slave, bytes, size, &it.saved);
        expect(status == OK || status == ERROR || status == FATAL, "a status that does not exist");
        expect(status != OK || size == it.size, "a state of another size was accepted");
        if (status == OK) {
            accepted++;
            status = fmi2SetFMUstate(it.slave, it.saved);
            for (int i = 0; i < 12; i++) {
                int function = i < 2 ? STEP_ON : (int)(bits(&seed) % FUNCTIONS);
                status = call(&it, function == SERIALISE ? GET : function);
                expect(status >= OK && status <= FATAL, "a status that does not exist");
            }
        }
        free(bytes);
        expect_as_new(&it, "a damaged state");
        end(&it);
    }
    printf("%ld of %ld states were accepted\n", accepted, count);
}

int main(int count, char **arguments)
{
    const char *what = count > 1 ? arguments[1] : "";
    long a = count > 2 ? atol(arguments[2]) : 0, b = count > 3 ? atol(arguments[3]) : 0;
    Instance first = make("reference");
    run(&first, reference, 2);
    end(&first);
    if (!strcmp(what, "steps")) many_steps(a);
    else if (!strcmp(what, "instances")) many_instances(a);
    else if (!strcmp(what, "orders")) all_orders((int)a);
    else if (!strcmp(what, "random")) random_orders((uint64_t)a, b);
    else if (!strcmp(what, "times")) hostile_times();
    else if (!strcmp(what, "arguments")) hostile_arguments();
    else if (!strcmp(what, "states")) damaged_states((uint64_t)a, b);
    else return 2;
    if (allocated) complain("%ld pieces of memory were not freed", allocated);
    return wrong > 0;
}
