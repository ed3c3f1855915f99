package upstream

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/tenure-go/tenure/fence/fencehttp"
)

// Rule says what a request is about. The zero value is the path.
type Rule struct {
	segments int    // of the path that count; 0: all
	header   string // that names the resource
	fixed    string // the one resource that there is
}

// Rules are the forms that [ParseRule] reads, for help texts.
const Rules = `path (all of the path), path:N (its first N segments), header:NAME (a header's value), fixed:NAME (one resource, whatever the request)`

// ParseRule reads a rule; see [Rules]. It returns an error matching [ErrOption] for anything else.
func ParseRule(text string) (Rule, error) {
	kind, value, valued := strings.Cut(text, ":")
	bad := fmt.Errorf("%w: %q is no rule for resources; known are %s", ErrOption, text, Rules)
	switch {
	case kind == "path" && !valued:
		return Rule{}, nil
	case kind == "path":
		n, err := strconv.Atoi(value)
		if err != nil || n < 1 {
			return Rule{}, bad
		}
		return Rule{segments: n}, nil
	case kind == "header" && value != "" && !strings.ContainsAny(value, " :\t\r\n"):
		return Rule{header: http.CanonicalHeaderKey(value)}, nil
	case kind == "fixed" && fencehttp.CheckResource(value) == nil:
		return Rule{fixed: value}, nil
	}
	return Rule{}, bad
}

func (r Rule) resource(req *http.Request) (string, error) {
	switch {
	case r.fixed != "":
		return r.fixed, nil
	case r.header != "":
		values := req.Header.Values(r.header)
		if len(values) != 1 || values[0] == "" {
			return "", &fencehttp.ResourceError{Problem: "the header " + r.header + " must name it, once"}
		}
		return values[0], nil
	}
	resource, _, err := fencehttp.PathResource(r.segments)(req)
	return resource, err
}
