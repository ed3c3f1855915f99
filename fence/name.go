package fence

import (
	"strconv"
	"unicode"
	"unicode/utf8"
)

// MaxName is the greatest length of a name, in bytes.
const MaxName = 512

// CheckName returns an error matching [ErrInvalid] unless name may be owned: valid UTF-8 of 1 to
// [MaxName] bytes without control characters and without '#', which is reserved for the slots of a
// counting lease. Names are compared byte by byte: nothing is trimmed, folded or normalised, and "a" has
// nothing to do with "a/" or "a/b".
func CheckName(name string) error {
	switch {
	case name == "":
		return invalid("name", "empty")
	case len(name) > MaxName:
		return invalid("name", "longer than "+strconv.Itoa(MaxName)+" bytes")
	case !utf8.ValidString(name):
		return invalid("name", "not valid UTF-8")
	}
	for _, r := range name {
		if r == '#' {
			return invalid("name", "'#' is reserved for the slots of a counting lease")
		}
		if unicode.IsControl(r) {
			return invalid("name", "contains the control character "+strconv.QuoteRuneToASCII(r))
		}
	}
	return nil
}
