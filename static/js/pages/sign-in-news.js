// Tells the other pages of this browser what became of a sign-in; with data-close it closes the window that was for it.
{
  const news = JSON.parse(document.getElementById("news").textContent);
  const close = "close" in document.currentScript.dataset;
  if (window.BroadcastChannel) {
    const channel = new BroadcastChannel("chatui:sign-in");
    channel.postMessage(news);
    channel.close();
  }
  // A tab that a person opened stays: then the page says what to do.
  if (close) setTimeout(() => window.close(), 600);
}
