await 1;
