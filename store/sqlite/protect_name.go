package sqlite

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/tenure-go/tenure/lease"
)

// maxExpression bounds a name expression, in bytes.
const maxExpression = 4096

// The kinds of token that a name expression is made of.
const (
	plainToken  = iota // a number, an operator, a bracket, a string
	wordToken          // a keyword, a function, a column
	quotedToken        // an identifier in quotes
)

// token is one piece of a name expression.
type token struct {
	kind int
	text string // a word as it stands, a quoted identifier without its quotes
}

func badName(format string, args ...any) error {
	return &lease.InvalidError{Field: "name expression", Problem: fmt.Sprintf(format, args...) + "; nothing was changed"}
}

// checkName returns the columns that the expression speaks of, or a [*lease.InvalidError]. What it lets through is one expression in balanced
// brackets, whatever it means: it cannot end the statement that it is put into. That it means something, and always the same, is SQLite's to decide.
func checkName(expression string, columns []column) ([]string, error) {
	tokens, err := scanName(expression)
	if err != nil {
		return nil, err
	}
	known := make(map[string]string, len(columns))
	for _, c := range columns {
		known[fold(c.Name)] = c.Name
	}
	used := map[string]bool{}
	var names []string
	for _, t := range tokens {
		column, isColumn := known[fold(t.text)]
		switch {
		case t.kind == plainToken:
			continue
		case isColumn:
			if !used[column] {
				used[column] = true
				names = append(names, column)
			}
		case t.kind == quotedToken:
			return nil, badName("%q is no column of the table, and SQLite would read it as a text", t.text)
		case unfit(t.text) != "":
			return nil, badName("%s %s", t.text, unfit(t.text))
		}
	}
	return names, nil
}

// unfit says why a word has no place in a name expression. SQLite itself refuses most of what is not deterministic, but not these.
func unfit(word string) string {
	switch fold(word) {
	case "date", "time", "datetime", "julianday", "unixepoch", "strftime", "timediff", "current_date", "current_time", "current_timestamp":
		return "may depend on the time: the same row must always have the same name; keep a day in a column as text"
	case "like":
		return "depends on a setting of the connection: the same row must always have the same name"
	case "select", "raise", "exists", "values", "with":
		return "has no place in it: it is one expression over the columns of the row"
	}
	return ""
}

// fold is how SQLite compares identifiers: ASCII letters alone lose their case.
func fold(name string) string {
	return strings.Map(func(r rune) rune {
		if 'A' <= r && r <= 'Z' {
			return r + 'a' - 'A'
		}
		return r
	}, name)
}

// scanName cuts the expression into tokens, and refuses what could lead out of it.
func scanName(expression string) ([]token, error) {
	switch {
	case strings.TrimSpace(expression) == "" || len(expression) > maxExpression:
		return nil, badName("want 1 to %d bytes, not %d", maxExpression, len(expression))
	case !utf8.ValidString(expression):
		return nil, badName("not valid UTF-8")
	}
	var tokens []token
	depth := 0
	for rest := expression; rest != ""; {
		t, n, err := scanToken(rest)
		if err != nil {
			return nil, err
		}
		rest = rest[n:]
		if t.kind == plainToken {
			switch t.text {
			case "":
				continue
			case "(":
				depth++
			case ")":
				depth--
			}
			if depth < 0 {
				return nil, badName("a bracket closes that was not opened")
			}
		}
		tokens = append(tokens, t)
	}
	if depth != 0 {
		return nil, badName("a bracket is not closed")
	}
	return tokens, nil
}

// scanToken reads the first token of text, which is not empty, and returns its length in bytes.
func scanToken(text string) (token, int, error) {
	switch ch := text[0]; {
	case ch == ' ' || ch == '\t' || ch == '\n' || ch == '\r':
		return token{}, 1, nil
	case ch == '\'' || ch == '"' || ch == '`':
		return scanQuoted(text, ch)
	case ch == '[':
		end := strings.IndexByte(text, ']')
		if end < 0 {
			return token{}, 0, badName("a quote is not closed")
		}
		return token{kind: quotedToken, text: text[1:end]}, end + 1, nil
	case strings.HasPrefix(text, "--") || strings.HasPrefix(text, "/*"):
		return token{}, 0, badName("comments have no place in it")
	case ch < ' ' || ch == 0x7f || strings.IndexByte(";?:@$#{}\\]!", ch) >= 0 && !strings.HasPrefix(text, "!="):
		return token{}, 0, badName("%q has no place in it", rune(ch))
	case isWord(ch) && (ch < '0' || ch > '9'):
		n := 1
		for n < len(text) && (isWord(text[n]) || text[n] == '$') {
			n++
		}
		return token{kind: wordToken, text: text[:n]}, n, nil
	}
	return token{text: text[:1]}, 1, nil
}

func isWord(ch byte) bool {
	return ch == '_' || ch >= 0x80 || 'a' <= ch && ch <= 'z' || 'A' <= ch && ch <= 'Z' || '0' <= ch && ch <= '9'
}

// scanQuoted reads a text or an identifier up to its closing quote; a quote within is doubled.
func scanQuoted(text string, quote byte) (token, int, error) {
	for i := 1; i < len(text); i++ {
		switch {
		case text[i] != quote:
		case i+1 < len(text) && text[i+1] == quote:
			i++
		case quote == '\'':
			return token{text: "''"}, i + 1, nil
		default:
			q := string(quote)
			return token{kind: quotedToken, text: strings.ReplaceAll(text[1:i], q+q, q)}, i + 1, nil
		}
	}
	return token{}, 0, badName("a quote is not closed")
}
