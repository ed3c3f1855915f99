package fence

import "strconv"

// Token orders the owners of one name: each grant's token is greater than every earlier one of that name.
// Valid tokens are positive. In text and in JSON a token is a string of decimal digits, because a JSON
// number loses digits above 2^53 in many readers.
type Token int64

// ParseToken reads decimal digits without sign, blank or leading zero, from 1 to 2^63-1.
// It returns an error matching [ErrInvalid] for anything else.
func ParseToken(text string) (Token, error) {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n <= 0 || strconv.FormatInt(n, 10) != text {
		return 0, invalid("token", "want decimal digits from 1 to 9223372036854775807")
	}
	return Token(n), nil
}

// String is the decimal form.
func (t Token) String() string { return strconv.FormatInt(int64(t), 10) }

// MarshalText writes the decimal form, so that JSON carries a string. Token 0, "none yet", is the empty text.
func (t Token) MarshalText() ([]byte, error) {
	if t == 0 {
		return nil, nil
	}
	if t < 0 {
		return nil, invalid("token", "negative")
	}
	return []byte(t.String()), nil
}

// UnmarshalText reads what [Token.MarshalText] wrote, or returns an error matching [ErrInvalid].
func (t *Token) UnmarshalText(text []byte) error {
	if len(text) == 0 {
		*t = 0
		return nil
	}
	parsed, err := ParseToken(string(text))
	if err != nil {
		return err
	}
	*t = parsed
	return nil
}
