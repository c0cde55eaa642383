package tools

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// location returns the time zone of TZ. It supports offsets only, as in UTC-2 or EST5EDT; there is
// no time zone database, so everything else is UTC.
func location(t *cmd) *time.Location {
	tz := strings.TrimPrefix(t.Getenv("TZ"), ":")
	letters := strings.TrimLeft(tz, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz")
	name := tz[:len(tz)-len(letters)]
	if name == "" || letters == "" {
		return time.UTC
	}
	sign, digits := -1, letters
	switch letters[0] {
	case '-':
		sign, digits = 1, letters[1:]
	case '+':
		digits = letters[1:]
	}
	hours, rest, _ := strings.Cut(digits, ":")
	h := leadingDigits(hours)
	n, err := strconv.Atoi(h)
	if err != nil || n > 24 {
		return time.UTC
	}
	minutes, _ := strconv.Atoi(leadingDigits(rest))
	return time.FixedZone(name, sign*(n*3600+minutes*60))
}

func date(t *cmd) {
	now := time.Now()
	loc := location(t)
	layout := "%a %b %e %H:%M:%S %Z %Y"
	var texts []string
	args := t.options(
		"u utc universal", func(v string) { loc = time.UTC },
		"d: date", &texts,
		"r: reference", func(v string) {
			info, err := t.FS.Stat(t.Dir, v)
			t.must(err, 1, "%s", v)
			now = info.ModTime()
		},
		"I:: iso-8601", func(v string) {
			layout = map[string]string{"": "%Y-%m-%d", "date": "%Y-%m-%d", "hours": "%Y-%m-%dT%H%:z", "minutes": "%Y-%m-%dT%H:%M%:z", "seconds": "%Y-%m-%dT%H:%M:%S%:z", "ns": "%Y-%m-%dT%H:%M:%S,%N%:z"}[v]
		},
		"R rfc-email rfc-2822", set(&layout, "%a, %d %b %Y %H:%M:%S %z"),
		"s: set", func(v string) { t.fatal(1, "cannot set date: Operation not permitted") },
	)
	for _, text := range texts {
		when, ok := parseDate(text, now, loc)
		if !ok {
			t.fatal(1, "invalid date '%s'", text)
		}
		now = when
	}
	if len(args) > 1 {
		t.fatal(1, "extra operand '%s'", args[1])
	}
	if len(args) == 1 {
		if !strings.HasPrefix(args[0], "+") {
			t.fatal(1, "invalid date '%s'", args[0])
		}
		layout = args[0][1:]
	}
	fmt.Fprintln(t.out, strftime(layout, now.In(loc)))
}

// strftime formats a time as date does. After "%", "-" removes padding, "_" pads with spaces, and
// "^" converts to upper case.
func strftime(layout string, when time.Time) string {
	var b strings.Builder
	for i := 0; i < len(layout); i++ {
		if layout[i] != '%' || i+1 == len(layout) {
			b.WriteByte(layout[i])
			continue
		}
		i++
		flags := ""
		for i < len(layout)-1 && strings.IndexByte("-_0^#:", layout[i]) >= 0 {
			flags += string(layout[i])
			i++
		}
		width := leadingDigits(layout[i:])
		if width != "" && i+len(width) < len(layout) {
			i += len(width)
		}
		b.WriteString(dateField(layout[i], flags, width, when))
	}
	return b.String()
}

func dateField(c byte, flags, width string, when time.Time) string {
	n, digits, pad := 0, 2, byte('0')
	_, isoWeek := when.ISOWeek()
	isoYear, _ := when.ISOWeek()
	hour12 := (when.Hour()+11)%12 + 1
	switch c {
	case 'Y':
		n, digits = when.Year(), 1
	case 'C':
		n = when.Year() / 100
	case 'y':
		n = when.Year() % 100
	case 'm':
		n = int(when.Month())
	case 'd':
		n = when.Day()
	case 'e':
		n, pad = when.Day(), ' '
	case 'H':
		n = when.Hour()
	case 'I':
		n = hour12
	case 'k':
		n, pad = when.Hour(), ' '
	case 'l':
		n, pad = hour12, ' '
	case 'M':
		n = when.Minute()
	case 'S':
		n = when.Second()
	case 'j':
		n, digits = when.YearDay(), 3
	case 'u':
		n, digits = (int(when.Weekday())+6)%7+1, 1
	case 'w':
		n, digits = int(when.Weekday()), 1
	case 'U':
		n = (when.YearDay() + 6 - int(when.Weekday())) / 7
	case 'W':
		n = (when.YearDay() + 6 - (int(when.Weekday())+6)%7) / 7
	case 'V':
		n = isoWeek
	case 'G':
		n, digits = isoYear, 1
	case 'g':
		n = isoYear % 100
	case 's':
		return strconv.FormatInt(when.Unix(), 10)
	case 'N':
		text := fmt.Sprintf("%09d", when.Nanosecond())
		if w, err := strconv.Atoi(width); err == nil && w > 0 && w < 9 {
			text = text[:w]
		}
		return text
	default:
		return dateText(c, flags, when)
	}
	if strings.Contains(flags, "-") {
		return strconv.Itoa(n)
	}
	if strings.Contains(flags, "_") {
		pad = ' '
	}
	if strings.Contains(flags, "0") {
		pad = '0'
	}
	if w, err := strconv.Atoi(width); err == nil {
		digits = min(w, 64)
	}
	text := strconv.Itoa(n)
	return strings.Repeat(string(pad), max(0, digits-len(text))) + text
}

func dateText(c byte, flags string, when time.Time) string {
	text := ""
	switch c {
	case '%':
		text = "%"
	case 'n':
		text = "\n"
	case 't':
		text = "\t"
	case 'a':
		text = when.Format("Mon")
	case 'A':
		text = when.Format("Monday")
	case 'b', 'h':
		text = when.Format("Jan")
	case 'B':
		text = when.Format("January")
	case 'p':
		text = when.Format("PM")
	case 'P':
		text = strings.ToLower(when.Format("PM"))
	case 'Z':
		text = when.Format("MST")
	case 'z':
		text = when.Format("-0700")
		if strings.Contains(flags, ":") {
			text = when.Format("-07:00")
		}
	case 'D', 'x':
		text = strftime("%m/%d/%y", when)
	case 'F':
		text = strftime("%Y-%m-%d", when)
	case 'T', 'X':
		text = strftime("%H:%M:%S", when)
	case 'R':
		text = strftime("%H:%M", when)
	case 'r':
		text = strftime("%I:%M:%S %p", when)
	case 'c':
		text = strftime("%a %b %e %H:%M:%S %Y", when)
	default:
		text = "%" + flags + string(c)
	}
	if strings.Contains(flags, "^") {
		text = strings.ToUpper(text)
	}
	return text
}

// parseStamp parses the format of touch -t: [[CC]YY]MMDDhhmm[.ss].
func parseStamp(text string) (time.Time, bool) {
	whole, seconds, has := strings.Cut(text, ".")
	switch len(whole) {
	case 8:
		whole = strconv.Itoa(time.Now().Year()) + whole
	case 10:
		century := "20"
		if whole >= "69" {
			century = "19"
		}
		whole = century + whole
	}
	if !has {
		seconds = "00"
	}
	when, err := time.ParseInLocation("20060102150405", whole+seconds, time.UTC)
	return when, err == nil
}

var dateLayouts = []string{
	time.RFC3339Nano, "2006-01-02T15:04:05", "2006-01-02T15:04", "2006-01-02 15:04:05.999999999 -0700", "2006-01-02 15:04:05 -0700", "2006-01-02 15:04:05Z07:00", "2006-01-02 15:04:05 MST",
	"2006-01-02 15:04:05.999999999", "2006-01-02 15:04", "2006-01-02", "2006/01/02 15:04:05", "2006/01/02", "01/02/2006", "01/02/2006 15:04:05", "20060102", "20060102 15:04:05",
	time.RFC1123Z, time.RFC1123, time.ANSIC, time.UnixDate, "2 Jan 2006", "2 Jan 2006 15:04:05", "Jan 2 2006", "Jan 2, 2006", "January 2, 2006", "2 January 2006", "Jan 2 15:04:05 2006",
}

// parseDate parses a date as date -d does: absolute formats, and relative ones such as "tomorrow",
// "2 days ago" and "next month", also after an absolute one.
func parseDate(text string, now time.Time, loc *time.Location) (time.Time, bool) {
	now = now.In(loc)
	text = strings.TrimSpace(text)
	if seconds, ok := strings.CutPrefix(text, "@"); ok {
		f, err := strconv.ParseFloat(seconds, 64)
		whole, frac := math.Modf(f)
		return time.Unix(int64(whole), int64(frac*1e9)), err == nil && math.Abs(f) < 1e15
	}
	words := strings.Fields(strings.NewReplacer(" + ", " +", " - ", " -").Replace(text))
	base, used := now, 0
	for n := len(words); n > 0; n-- {
		if when, ok := absoluteDate(strings.Join(words[:n], " "), now, loc); ok {
			base, used = when, n
			break
		}
	}
	return relativeDate(words[used:], base)
}

func absoluteDate(text string, now time.Time, loc *time.Location) (time.Time, bool) {
	for _, layout := range dateLayouts {
		if when, err := time.ParseInLocation(layout, text, loc); err == nil {
			return when, true
		}
	}
	for _, layout := range []string{"15:04", "15:04:05", "3:04pm", "3pm"} {
		if when, err := time.ParseInLocation(layout, strings.ToLower(text), loc); err == nil {
			y, m, d := now.Date()
			return time.Date(y, m, d, when.Hour(), when.Minute(), when.Second(), 0, loc), true
		}
	}
	return time.Time{}, false
}

func relativeDate(words []string, base time.Time) (time.Time, bool) {
	for i := 0; i < len(words); i++ {
		w := strings.ToLower(words[i])
		switch w {
		case "now":
			continue
		case "today":
			continue
		case "tomorrow":
			base = base.AddDate(0, 0, 1)
			continue
		case "yesterday":
			base = base.AddDate(0, 0, -1)
			continue
		case "utc", "gmt", "z":
			base = time.Date(base.Year(), base.Month(), base.Day(), base.Hour(), base.Minute(), base.Second(), base.Nanosecond(), time.UTC)
			continue
		}
		n := 1
		switch w {
		case "next":
		case "last":
			n = -1
		case "a", "an":
		default:
			digits := strings.TrimLeft(strings.TrimPrefix(w, "+"), "-")
			count := leadingDigits(digits)
			v, err := strconv.Atoi(count)
			if err != nil {
				return base, false
			}
			if n = v; strings.HasPrefix(w, "-") {
				n = -v
			}
			if unit := digits[len(count):]; unit != "" { // as in 2days
				words[i] = unit
				i--
			}
		}
		if i+1 >= len(words) {
			return base, false
		}
		i++
		unit := strings.TrimSuffix(strings.ToLower(words[i]), "s")
		if i+1 < len(words) && strings.ToLower(words[i+1]) == "ago" {
			n = -n
			i++
		}
		switch unit {
		case "sec", "second":
			base = base.Add(time.Duration(n) * time.Second)
		case "min", "minute":
			base = base.Add(time.Duration(n) * time.Minute)
		case "hour":
			base = base.Add(time.Duration(n) * time.Hour)
		case "day":
			base = base.AddDate(0, 0, n)
		case "week":
			base = base.AddDate(0, 0, 7*n)
		case "fortnight":
			base = base.AddDate(0, 0, 14*n)
		case "month":
			base = base.AddDate(0, n, 0)
		case "year":
			base = base.AddDate(n, 0, 0)
		default:
			return base, false
		}
	}
	return base, true
}
