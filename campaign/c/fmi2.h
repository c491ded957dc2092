/* An FMU beside the state that it must be in: the functions of FMI 2.0, the states of its section 4.2.4, and what each
 * call must answer. `variables.h` says what modelDescription.xml says.
 */
#include "variables.h"

#include <float.h>
#include <math.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { OK, WARNING, DISCARD, ERROR, FATAL };
typedef struct {
    void (*logger)(void *, const char *, int, const char *, const char *, ...);
    void *(*allocate)(size_t, size_t);
    void (*release)(void *);
    void (*finished)(void *, int);
    void *environment;
} Callbacks;

const char *fmi2GetTypesPlatform(void);
const char *fmi2GetVersion(void);
void *fmi2Instantiate(const char *, int, const char *, const char *, const Callbacks *, int, int);
void fmi2FreeInstance(void *);
int fmi2SetDebugLogging(void *, int, size_t, const char *const *);
int fmi2SetupExperiment(void *, int, double, double, int, double);
int fmi2EnterInitializationMode(void *);
int fmi2ExitInitializationMode(void *);
int fmi2Terminate(void *);
int fmi2Reset(void *);
int fmi2GetReal(void *, const unsigned *, size_t, double *);
int fmi2SetReal(void *, const unsigned *, size_t, const double *);
int fmi2GetInteger(void *, const unsigned *, size_t, int *);
int fmi2SetInteger(void *, const unsigned *, size_t, const int *);
int fmi2GetBoolean(void *, const unsigned *, size_t, int *);
int fmi2SetBoolean(void *, const unsigned *, size_t, const int *);
int fmi2GetString(void *, const unsigned *, size_t, const char **);
int fmi2SetString(void *, const unsigned *, size_t, const char *const *);
int fmi2GetFMUstate(void *, void **);
int fmi2SetFMUstate(void *, void *);
int fmi2FreeFMUstate(void *, void **);
int fmi2SerializedFMUstateSize(void *, void *, size_t *);
int fmi2SerializeFMUstate(void *, void *, char *, size_t);
int fmi2DeSerializeFMUstate(void *, const char *, size_t, void **);
int fmi2GetDirectionalDerivative(
    void *, const unsigned *, size_t, const unsigned *, size_t, const double *, double *);
int fmi2SetRealInputDerivatives(void *, const unsigned *, size_t, const int *, const double *);
int fmi2GetRealOutputDerivatives(void *, const unsigned *, size_t, const int *, double *);
int fmi2DoStep(void *, double, double, int);
int fmi2CancelStep(void *);
int fmi2GetStatus(void *, int, int *);
int fmi2GetRealStatus(void *, int, double *);
int fmi2GetIntegerStatus(void *, int, int *);
int fmi2GetBooleanStatus(void *, int, int *);
int fmi2GetStringStatus(void *, int, const char **);

/* ---- The host ---- */

static long allocated, wrong;

static void *allocate(size_t count, size_t size)
{
    allocated++;
    return calloc(count, size);
}

static void release(void *memory)
{
    if (memory) allocated--;
    free(memory);
}

static void logger(void *environment, const char *name, int status, const char *category, const char *format, ...)
{
    char text[4096]; /* the text is formatted, so that a wrong format is found */
    va_list rest;
    va_start(rest, format);
    vsnprintf(text, sizeof text, format, rest);
    va_end(rest);
    if (status < OK || status > FATAL || !category || environment) abort();
    (void)name;
}

static const Callbacks CALLBACKS = {logger, allocate, release, 0, 0};

static void complain(const char *format, ...)
{
    va_list rest;
    if (wrong++ >= 5) return;
    va_start(rest, format);
    vprintf(format, rest);
    va_end(rest);
    puts("");
}

static void expect(int holds, const char *what)
{
    if (!holds) complain("%s", what);
}

static uint64_t bits(uint64_t *seed)
{
    uint64_t z = (*seed += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

/* ---- An instance, beside the state that it must be in ---- */

enum { INSTANTIATED = 1, INITIALISING = 2, COMPLETE = 4, STEP_FAILED = 8, TERMINATED = 16, FAILED = 32, ANY = 63 };

typedef struct {
    int state, set_up; /* fmi2SetupExperiment was called */
    double t;
} Place;

/* An instance, a saved state of it and a serialised one, and where each of them is. */
typedef struct {
    void *slave, *saved;
    char *bytes;
    size_t size;
    Place at, saved_at, bytes_at;
} Instance;

static Instance make(const char *name)
{
    Instance made = {0};
    made.slave = fmi2Instantiate(name, 1, GUID, "file:///nowhere", &CALLBACKS, 0, 1);
    made.at.state = INSTANTIATED;
    if (!made.slave) abort();
    return made;
}

static void end(Instance *it)
{
    if (it->saved && fmi2FreeFMUstate(it->slave, &it->saved)) complain("a state could not be freed");
    fmi2FreeInstance(it->slave);
    free(it->bytes);
}

enum {
    DEBUG, SETUP, ENTER, LEAVE, TERMINATE, RESET, GET, SET, SET_START, GET_INTEGER, SET_INTEGER, GET_BOOLEAN,
    SET_BOOLEAN, GET_STRING, SET_STRING, SAVE, RESTORE, FORGET, SIZE, SERIALISE, DESERIALISE, DERIVATIVE,
    INPUT_DERIVATIVES, OUTPUT_DERIVATIVES, STEP_ON, CANCEL, STATUS, REAL_STATUS, INTEGER_STATUS, BOOLEAN_STATUS,
    STRING_STATUS, FUNCTIONS
};
enum {
    SETTING = INSTANTIATED | INITIALISING | COMPLETE,
    GETTING = INITIALISING | COMPLETE | STEP_FAILED | TERMINATED | FAILED,
    ASKING = COMPLETE | STEP_FAILED | TERMINATED
};

/* In which states the standard allows each function. */
static const int ALLOWED[FUNCTIONS] = {
    [DEBUG] = ANY, [SETUP] = INSTANTIATED, [ENTER] = INSTANTIATED, [LEAVE] = INITIALISING,
    [TERMINATE] = COMPLETE | STEP_FAILED, [RESET] = ANY, [GET] = GETTING, [SET] = SETTING,
    [SET_START] = INSTANTIATED | INITIALISING, [GET_INTEGER] = GETTING, [SET_INTEGER] = SETTING,
    [GET_BOOLEAN] = GETTING, [SET_BOOLEAN] = SETTING, [GET_STRING] = GETTING, [SET_STRING] = SETTING, [SAVE] = ANY,
    [RESTORE] = ANY, [FORGET] = ANY, [SIZE] = ANY, [SERIALISE] = ANY, [DESERIALISE] = ANY, [DERIVATIVE] = GETTING,
    [INPUT_DERIVATIVES] = SETTING, [OUTPUT_DERIVATIVES] = GETTING & ~INITIALISING, [STEP_ON] = COMPLETE, [CANCEL] = 0,
    [STATUS] = ASKING, [REAL_STATUS] = ASKING, [INTEGER_STATUS] = ASKING, [BOOLEAN_STATUS] = ASKING,
    [STRING_STATUS] = ASKING
};
static const char *const NAMES[FUNCTIONS] = {
    "SetDebugLogging", "SetupExperiment", "EnterInitializationMode", "ExitInitializationMode", "Terminate", "Reset",
    "GetReal", "SetReal", "SetReal(start)", "GetInteger", "SetInteger", "GetBoolean", "SetBoolean", "GetString",
    "SetString", "GetFMUstate", "SetFMUstate", "FreeFMUstate", "SerializedFMUstateSize", "SerializeFMUstate",
    "DeSerializeFMUstate", "GetDirectionalDerivative", "SetRealInputDerivatives", "GetRealOutputDerivatives", "DoStep",
    "CancelStep", "GetStatus", "GetRealStatus", "GetIntegerStatus", "GetBooleanStatus", "GetStringStatus"
};

/* Whether the standard lets this call succeed, with what the model description says of the FMU. */
static int may_succeed(const Instance *it, int function)
{
    if (!(ALLOWED[function] & it->at.state)) return 0;
    switch (function) {
    case ENTER: return it->at.set_up;
    case RESTORE: case SIZE: case SERIALISE: return it->saved != 0;
    case DESERIALISE: return it->bytes != 0;
    case DERIVATIVE: return PROVIDES_DERIVATIVES;
    case INPUT_DERIVATIVES: return INTERPOLATES_INPUTS;
    case OUTPUT_DERIVATIVES: return OUTPUT_DERIVATIVE_ORDER > 0;
    default: return 1;
    }
}

static int call(Instance *it, int function)
{
    static const double values[N_REALS + 1]; /* zero is a value that every input can have */
    double results[N_REALS + 1], real;
    int integers[N_INTEGERS + 1] = {0}, integer, order[N_REALS + 1];
    const char *text = 0, *const categories[] = {"logStatusError"};
    size_t size;
    void *c = it->slave;
    for (int i = 0; i < N_REALS; i++) order[i] = 1;
    switch (function) {
    case DEBUG: return fmi2SetDebugLogging(c, 1, 1, categories);
    case SETUP: return fmi2SetupExperiment(c, 1, 1e-6, 0, 0, 0);
    case ENTER: return fmi2EnterInitializationMode(c);
    case LEAVE: return fmi2ExitInitializationMode(c);
    case TERMINATE: return fmi2Terminate(c);
    case RESET: return fmi2Reset(c);
    case GET: return fmi2GetReal(c, READABLE, N_READABLE, results);
    case SET: return fmi2SetReal(c, INPUTS, N_INPUTS, values);
    case SET_START: return fmi2SetReal(c, FIXED, N_FIXED, FIXED_STARTS);
    case GET_INTEGER: return fmi2GetInteger(c, INTEGERS, N_INTEGERS, integers);
    case SET_INTEGER: return fmi2SetInteger(c, INTEGERS, 0, integers);
    case GET_BOOLEAN: return fmi2GetBoolean(c, INTEGERS, 0, integers);
    case SET_BOOLEAN: return fmi2SetBoolean(c, INTEGERS, 0, integers);
    case GET_STRING: return fmi2GetString(c, INTEGERS, 0, &text);
    case SET_STRING: return fmi2SetString(c, INTEGERS, 0, &text);
    case SAVE: return fmi2GetFMUstate(c, &it->saved);
    case RESTORE: return fmi2SetFMUstate(c, it->saved);
    case FORGET: return fmi2FreeFMUstate(c, &it->saved);
    case SIZE: return fmi2SerializedFMUstateSize(c, it->saved, &it->size);
    case SERIALISE:
        if (!it->saved) return fmi2SerializeFMUstate(c, 0, (char *)results, sizeof results);
        free(it->bytes);
        it->bytes = fmi2SerializedFMUstateSize(c, it->saved, &size) ? 0 : malloc(it->size = size);
        return fmi2SerializeFMUstate(c, it->saved, it->bytes, it->size);
    case DESERIALISE: return fmi2DeSerializeFMUstate(c, it->bytes, it->bytes ? it->size : 0, &it->saved);
    case DERIVATIVE: return fmi2GetDirectionalDerivative(c, OUTPUTS, 1, INPUTS, 1, values, results);
    case INPUT_DERIVATIVES: return fmi2SetRealInputDerivatives(c, INPUTS, N_INPUTS, order, values);
    case OUTPUT_DERIVATIVES: return fmi2GetRealOutputDerivatives(c, OUTPUTS, N_OUTPUTS, order, results);
    case STEP_ON: return fmi2DoStep(c, it->at.t, STEP, 1);
    case CANCEL: return fmi2CancelStep(c);
    case STATUS: return fmi2GetStatus(c, 0, &integer);
    case REAL_STATUS: return fmi2GetRealStatus(c, 2, &real);
    case INTEGER_STATUS: return fmi2GetIntegerStatus(c, 1, &integer);
    case BOOLEAN_STATUS: return fmi2GetBooleanStatus(c, 3, &integer);
    default: return fmi2GetStringStatus(c, 1, &text);
    }
}

/* Where an instance is after a call that succeeded. */
static void follow(Instance *it, int function)
{
    switch (function) {
    case SETUP: it->at.set_up = 1, it->at.t = 0; break;
    case ENTER: it->at.state = INITIALISING; break;
    case LEAVE: it->at.state = COMPLETE; break;
    case TERMINATE: it->at.state = TERMINATED; break;
    case RESET: it->at.state = INSTANTIATED, it->at.set_up = 0; break;
    case SAVE: it->saved_at = it->at; break;
    case RESTORE: it->at = it->saved_at; break;
    case SERIALISE: it->bytes_at = it->saved_at; break;
    case DESERIALISE: it->saved_at = it->bytes_at; break;
    case STEP_ON: it->at.t += STEP; break;
    default: break;
    }
}

/* Call a function, compare the answer with the standard's, and follow the state. Returns whether it was right. */
static int attempt(Instance *it, int function)
{
    int before = it->at.state, possible = may_succeed(it, function), status;
    status = call(it, function);
    int question = function >= STATUS; /* a slave need not know the answer */
    int right = possible ? status == OK || (question && status == DISCARD) : status == ERROR || status == FATAL;
    if (!right)
        complain("fmi2%s in state %d returned %d, but %s", NAMES[function], before, status,
            possible ? "the standard allows it" : "the standard does not allow it");
    if (status == OK) follow(it, function);
    else if (status != DISCARD) it->at.state = FAILED;
    else if (function == STEP_ON) it->at.state = STEP_FAILED;
    return right;
}

/* Whether the outputs can be read and are finite. */
static int read_outputs(const Instance *it, double *outputs)
{
    if (fmi2GetReal(it->slave, OUTPUTS, N_OUTPUTS, outputs)) return 0;
    for (int i = 0; i < N_OUTPUTS; i++) if (!isfinite(outputs[i])) return 0;
    return 1;
}

/* Initialise and make some steps as the standard wants it; the outputs are the same every time. */
static void run(Instance *it, double *outputs, int steps)
{
    static const int first[] = {RESET, SETUP, ENTER, LEAVE};
    for (int i = 0; i < 4; i++) expect(attempt(it, first[i]), "a correct initialisation failed");
    for (int i = 0; i < steps; i++) expect(attempt(it, STEP_ON), "a correct step failed");
    expect(read_outputs(it, outputs), "the outputs cannot be read, or are not finite");
}

static double reference[N_OUTPUTS + 1];

/* An instance that saw all kinds of calls is as good as new after fmi2Reset. */
static void expect_as_new(Instance *it, const char *after)
{
    double outputs[N_OUTPUTS + 1];
    run(it, outputs, 2);
    if (memcmp(outputs, reference, N_OUTPUTS * sizeof(double)))
        complain("another result than that of a new instance after %s", after);
}
