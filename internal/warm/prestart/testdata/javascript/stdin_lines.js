// stdin: 1\n2\n3
(async () => {
  let sum = 0;
  for await (const line of require('readline').createInterface({ input: process.stdin })) sum += Number(line);
  console.log(sum);
})();
