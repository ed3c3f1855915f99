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
		values := valuesOf(req.Header, r.header)
		if len(values) != 1 || values[0] == "" || len(req.Header.Values(r.header)) != 1 {
			return "", &fencehttp.ResourceError{Problem: "the header " + r.header + " must name it, once"}
		}
		for _, listed := range valuesOf(req.Header, "Connection") {
			for one := range strings.SplitSeq(listed, ",") {
				if sameHeader(strings.TrimSpace(one), r.header) {
					return "", &fencehttp.ResourceError{Problem: "the header " + r.header + " names it, and Connection asks for it not to be passed on"}
				}
			}
		}
		return values[0], nil
	}
	resource, _, err := fencehttp.PathResource(r.segments)(req)
	return resource, err
}

// sameHeader reports whether a service may take one header for the other: many do not tell underscores from hyphens.
func sameHeader(a, b string) bool {
	return strings.EqualFold(strings.ReplaceAll(a, "_", "-"), strings.ReplaceAll(b, "_", "-"))
}

// valuesOf are all that a service may take for the header's values.
func valuesOf(h http.Header, name string) (all []string) {
	for key, values := range h {
		if sameHeader(key, name) {
			all = append(all, values...)
		}
	}
	return all
}
