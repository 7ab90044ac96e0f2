"""Changes of generated cases, each for a rule that OpenAPI has no words for. Only what is valid by the schema changes."""

import schemathesis

# Calls that wait for work would take a minute each. How long a valid wait is matters to no check.
WAIT_MAX_MS = 50
WAITS = {"max_wait_ms": 60_000, "wait_ms": 60_000}

# A larger whole number is refused wherever it stands, also in free JSON, because parsers of JSON change it silently.
EXACT_MAX = 2**53 - 1

NAME_CHARS = 200
BUCKETS = {"1m", "5m", "15m", "1h", "1d"}


def with_exact_numbers(value):
    if isinstance(value, dict):
        return {name: with_exact_numbers(member) for name, member in value.items()}
    if isinstance(value, list):
        return [with_exact_numbers(item) for item in value]
    if type(value) is int or (isinstance(value, float) and value.is_integer()):
        return max(-EXACT_MAX, min(EXACT_MAX, value))
    return value


@schemathesis.hook
def before_call(context, case, kwargs):
    path = case.operation.path
    if isinstance(case.body, dict):
        case.body = with_exact_numbers(case.body)
        for name, allowed in WAITS.items():
            value = case.body.get(name)
            # A number such as 50000.0 is an integer in JSON Schema.
            if type(value) in (int, float) and WAIT_MAX_MS < value <= allowed and value == int(value):
                case.body[name] = WAIT_MAX_MS
        # Where it is left out, the server waits for long.
        if path == "/internal/worker/claim" and case.body.get("max_wait_ms") is None:
            case.body["max_wait_ms"] = WAIT_MAX_MS
        if path == "/api/files/release":
            fit_fences(case.body)
    if path.endswith("/stats/timeseries") and isinstance(case.query, dict):
        fit_series(case.query)


def fit_fences(body):
    # Fences must be of files that are among the paths; without paths, all files are meant.
    paths = body.get("paths")
    are_valid = isinstance(paths, list) and paths and all(isinstance(path, str) and path for path in paths)
    if body.get("fences") and are_valid:
        del body["paths"]
    # Files are named in one repository.
    if body.get("repository") == "*" and (are_valid or body.get("fences")):
        body["repository"] = "every"


def fit_series(query):
    # Capacity belongs to no submitter.
    addon_id = query.get("addon_id")
    is_valid = isinstance(addon_id, str) and addon_id.strip() != "" and len(addon_id) <= NAME_CHARS
    if is_valid and str(query.get("metric")).startswith("capacity_"):
        del query["addon_id"]
    # A narrow bucket over a long range has too many points; the widest fits every range.
    bucket = query.get("bucket", "1d")
    if "range" in query and isinstance(bucket, str) and bucket in BUCKETS:
        query["bucket"] = "1d"
