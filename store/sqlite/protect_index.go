package sqlite

import "strings"

// indexParts takes the definition of an index apart: what it is over, without ASC and DESC, and the condition of a partial one, or "".
// Comments are left out. It reads what SQLite has accepted, and reports false for what it does not understand.
func indexParts(definition string) (items []string, where string, ok bool) {
	var item, rest []string
	depth, closed := 0, false
	for text := definition; text != ""; {
		n, comment := element(text)
		one := text[:n]
		text = text[n:]
		if comment || strings.TrimSpace(one) == "" {
			one = " "
		}
		if closed {
			rest = append(rest, one)
			continue
		}
		switch one {
		case "(":
			if depth++; depth == 1 {
				continue
			}
		case ")":
			if depth--; depth == 0 {
				items, closed = append(items, withoutOrder(item)), true
				continue
			}
		case ",":
			if depth == 1 {
				items, item = append(items, withoutOrder(item)), nil
				continue
			}
		}
		if depth > 0 {
			item = append(item, one)
		}
	}
	condition := strings.TrimSpace(strings.Join(rest, ""))
	if condition == "" {
		return items, "", closed
	}
	const keyword = "where"
	if len(condition) <= len(keyword) || fold(condition[:len(keyword)]) != keyword {
		return nil, "", false
	}
	return items, strings.TrimSpace(condition[len(keyword):]), closed
}

func withoutOrder(item []string) string {
	last := len(item) - 1
	for last >= 0 && item[last] == " " {
		last--
	}
	if last >= 0 && (fold(item[last]) == "asc" || fold(item[last]) == "desc") {
		item = item[:last]
	}
	return strings.TrimSpace(strings.Join(item, ""))
}

// element is the length of the first lexical element of text: a comment, something in quotes, a word, or a single character.
func element(text string) (n int, comment bool) {
	until := func(from int, end string) int {
		if i := strings.Index(text[from:], end); i >= 0 {
			return from + i + len(end)
		}
		return len(text)
	}
	switch ch := text[0]; {
	case strings.HasPrefix(text, "--"):
		return until(2, "\n"), true
	case strings.HasPrefix(text, "/*"):
		return until(2, "*/"), true
	case ch == '\'' || ch == '"' || ch == '`':
		return until(1, text[:1]), false // a doubled quote is two of these side by side
	case ch == '[':
		return until(1, "]"), false
	case isWord(ch):
		for n = 1; n < len(text) && (isWord(text[n]) || text[n] == '$'); n++ {
		}
		return n, false
	}
	return 1, false
}
