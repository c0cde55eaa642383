package kernel

import (
	"archive/zip"
	"bytes"
	"encoding/json"
	"image/png"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/internal/test/testenv"
)

// unpackWheels unpacks the wheels of numpy, pandas, matplotlib and their dependencies.
func unpackWheels(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	all, err := filepath.Glob(filepath.Join(testenv.WheelsDir(), "*.whl"))
	if err != nil || len(all) == 0 {
		t.Fatal(all, err)
	}
	for _, name := range all {
		// pip and what the SDK needs, which the cells do not use
		if other, _, _ := strings.Cut(filepath.Base(name), "-"); slices.Contains([]string{"pip", "anyio", "certifi", "h11", "httpcore", "httpx", "idna", "typing_extensions"}, other) {
			continue
		}
		z, err := zip.OpenReader(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range z.File {
			if f.FileInfo().IsDir() {
				continue
			}
			if err := unpack(f, filepath.Join(dir, f.Name)); err != nil {
				t.Fatal(err)
			}
		}
		z.Close()
	}
	return dir
}

func unpack(f *zip.File, to string) error {
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	r, err := f.Open()
	if err != nil {
		return err
	}
	defer r.Close()
	b, err := io.ReadAll(r)
	if err != nil {
		return err
	}
	return os.WriteFile(to, b, 0o644)
}

// Figures are results without a call of show, with the data of their charts, and tables have their
// columns.
func TestCharts(t *testing.T) {
	testenv.Need(t, testenv.PyWheels)
	s := open(t, "python", "/usr/bin/python3", "PYTHONPATH="+unpackWheels(t), "MPLCONFIGDIR="+t.TempDir())
	s.patience *= 6 // the first import of matplotlib makes a list of fonts
	s.want("import numpy as np, pandas as pd, matplotlib.pyplot as plt", "")
	s.want("np.arange(6).reshape(2, 3)", "[array([[0, 1, 2],\n       [3, 4, 5]])]")
	s.want("pd.DataFrame({'a': [1.5, None], 'b': ['x', 'y']})", "[     a  b\n0  1.5  x\n1  NaN  y +html +data]")
	if d := s.last(); string(d.Data) != `{"a": [1.5, null], "b": ["x", "y"]}` || !strings.Contains(d.HTML, "<table") {
		t.Errorf("%s", d.Data)
	}
	const figure = "[<Figure size 640x480 with 1 Axes> +png +chart (displayed)]"
	s.want("plt.plot([1, 2], [3, 4]); plt.show(); print('after')", figure+"after\n")
	for code, want := range map[string]string{
		"plt.plot([1, 2], [3, 4], label='l'); plt.xlabel('t (s)');": `{"type":"line","title":null,"elements":[{"label":"l","points":[[1,3],[2,4]]}],"x_label":"t (s)","x_unit":"s"}`,
		"plt.scatter([1], [2]); plt.title('T');":                    `{"type":"scatter","title":"T","elements":[{"label":"_child0","points":[[1,2]]}]}`,
		"plt.bar(['a', 'b'], [3, 4], label='g');":                   `{"type":"bar","title":null,"elements":[{"label":"a","group":"g","value":3},{"label":"b","group":"g","value":4}]}`,
		"plt.pie([1, 3], labels=['x', 'y'], autopct='%d');":         `{"type":"pie","title":null,"elements":[{"label":"x","angle":90,"radius":1},{"label":"y","angle":270,"radius":1}]}`,
		"plt.boxplot([1, 2, 3, 4, 20]);":                            `{"type":"box_and_whisker","title":null,"elements":[{"label":"1","min":1,"first_quartile":2,"median":3,"third_quartile":4,"max":4,"outliers":[20]}]}`,
	} {
		s.want(code, figure)
		var got, expected map[string]any
		d := s.last()
		if err := json.Unmarshal(d.Chart, &got); err != nil {
			t.Fatalf("%s: %v", code, err)
		}
		if err := json.Unmarshal([]byte(want), &expected); err != nil {
			t.Fatal(err)
		}
		for k, v := range expected {
			a, _ := json.Marshal(v)
			if b, _ := json.Marshal(got[k]); !bytes.Equal(a, b) {
				t.Errorf("%s\n%s: got %s, want %s", code, k, b, a)
			}
		}
		if _, err := png.Decode(bytes.NewReader(d.PNG)); err != nil {
			t.Errorf("%s: the image: %v", code, err)
		}
	}
	s.want("f, _ = plt.subplots(1, 2); f", "[<Figure size 640x480 with 2 Axes> +png +chart]")
}

// last returns the last result.
func (s *session) last() sandbar.Display {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.shown[len(s.shown)-1]
}
