package image

func mainOfTests() { Main() }
